"""Compares the sensitivity in statistics with a run of the whole model that has one group quantized."""

import math
from functools import partial

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
pytest.importorskip("safetensors")

import nvfp4
from calibrate_cases import SIZES, write_model, write_text_of_words
from nvfp4._cli import run_here
from nvfp4.calibrate import Statistics, calibrate, merge
from nvfp4.calibrate.collect import Collector, Watch
from nvfp4.calibrate.sensitivity import Perturbed, PerturbedInputs, Sensitivity, default_tokens, groups_of, quantized, windows_of_few
from nvfp4.calibrate.statistics import change
from nvfp4.evaluate.text import windows

main = partial(run_here, "calibrate")
F = torch.nn.functional

GROUPS = {"dense": (("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"), ("self_attn.o_proj",),
                    ("mlp.gate_proj", "mlp.up_proj"), ("mlp.down_proj",))}
SENSITIVITIES = (".sensitivity", ".change", ".input_sensitivity")
GROUPS["experts"] = (*GROUPS["dense"][:2], ("mlp.experts.gate_up_proj", "mlp.experts.down_proj"))


@pytest.fixture(scope="module", params=["dense", "experts"])
def kind(request):
    return request.param


@pytest.fixture(scope="module")
def model(kind, tmp_path_factory):
    return write_model(tmp_path_factory.mktemp("sensitivity") / kind, kind == "experts")


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    return write_text_of_words(tmp_path_factory.mktemp("text") / "text.txt")


def sensitivities(statistics):
    return {name.removesuffix(".sensitivity"): t.item() for name, t in statistics.tensors.items()
            if name.endswith(".sensitivity")}


def input_sensitivities(statistics):
    return {name.removesuffix(".input_sensitivity"): change(*t).item() for name, t in statistics.tensors.items()
            if name.endswith(".input_sensitivity")}


def modules_of(group):
    """Yields parameter, expert and checkpoint names of the matrices of a group."""
    for parameter in group:
        if ".experts." not in parameter:
            yield parameter, None, (parameter,)
            continue
        prefix, _, last = parameter.rpartition(".")
        for expert in range(4):
            yield parameter, expert, tuple(f"{prefix}.{expert}.{part}" for part in
                                           (("gate_proj", "up_proj") if last == "gate_up_proj" else (last,)))


def by_brute_force(model, kind, text, statistics, few):
    """Returns module -> its sensitivity, and the same for inputs: the whole model with each group quantized, one after
    the other."""
    loaded = transformers.AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32,
                                                               experts_implementation="eager").eval()
    tokens = windows(text, transformers.AutoTokenizer.from_pretrained(model), SIZES["windows"], SIZES["context"])[:, :-1]

    def last_states():
        with torch.no_grad():
            return loaded.model(tokens[:few]).last_hidden_state.double()

    def relative(states):
        return ((states - plain).norm(dim=-1) / plain.norm(dim=-1)).sqrt().mean().item() ** 4

    def quantize_inputs(function, weights):
        """Returns `function` of an input x in NVFP4, if it multiplies x by one of `weights`."""
        def run(x, weight, *args, **kwargs):
            if any(weight.data_ptr() == w.data_ptr() for w in weights):
                rows = nvfp4.quantize(x.reshape(-1, x.shape[-1]), "max", scope="vector")
                x = rows.dequantize("float32").reshape(x.shape)
            return function(x, weight, *args, **kwargs)
        return run

    plain, found, of_inputs = last_states(), {}, {}
    for layer in range(2):
        for group in GROUPS[kind]:
            begin, before, lost, weights = f"model.layers.{layer}.", {}, 0.0, []
            for parameter, expert, modules in modules_of(group):
                whole = loaded.get_parameter(begin + parameter + ("" if expert is not None else ".weight")).data
                weight = whole if expert is None else whole[expert]
                before.setdefault(parameter, (whole, whole.clone()))
                weights.append(weight)
                changed = nvfp4.quantize(weight, "max").dequantize("float32")
                diag = statistics.tensors[f"{begin}{modules[0]}.diag"]
                lost += ((changed - weight).double().square().sum(0) * diag).sum().item()
                weight.copy_(changed)
            weight_change = relative(last_states())
            for whole, values in before.values():
                whole.copy_(values)
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(F, "linear", quantize_inputs(F.linear, weights))
                input_change = relative(last_states())
            for _, _, modules in modules_of(group):
                found |= {begin + m: weight_change / (lost / tokens.numel()) for m in modules}
                of_inputs |= {begin + m: input_change for m in modules}
    return found, of_inputs


@pytest.mark.parametrize("memory", [None, 0])
def test_each_group_alone_equals_the_whole_model(model, kind, text, memory, tmp_path):
    statistics = calibrate(model, text, tmp_path / "stats", sensitivity=2 * SIZES["context"], gram_memory=memory, **SIZES)
    for found, expected in zip((sensitivities(statistics), input_sensitivities(statistics)),
                               by_brute_force(model, kind, text, statistics, 2)):
        assert found.keys() == expected.keys() == set(statistics.modules())
        for module, value in expected.items():
            assert found[module] == pytest.approx(value, rel=2e-3), module
        assert len({round(math.log(v), 6) for v in found.values()}) == 2 * len(GROUPS[kind])


def test_other_statistics_do_not_depend_on_it(model, text, tmp_path):
    """Also those of keys and values, which the copies of the states make, too."""
    plain = calibrate(model, text, tmp_path / "plain", sensitivity=0, **SIZES)
    full = calibrate(model, text, tmp_path / "full", **SIZES)
    assert not sensitivities(plain) and not input_sensitivities(plain)
    assert sensitivities(full).keys() == set(full.modules())
    assert {k: t.tolist() for k, t in full.tensors.items() if not k.endswith(SENSITIVITIES)} == {
        k: t.tolist() for k, t in plain.tensors.items()}
    assert any(k.endswith("k_cache.amax") for k in plain.tensors)


def test_ranks_of_every_token_equal_one_process(model, text, tmp_path):
    sizes = dict(windows=9, context=32)
    whole = calibrate(model, text, tmp_path / "whole", batch=9, sensitivity=9 * 32, **sizes)
    for rank in range(3):
        calibrate(model, text, tmp_path / "part", batch=3, sensitivity=3 * 32, rank=rank, ranks=3, **sizes)
    parts = [tmp_path / f"part.rank-{rank}-of-3" for rank in range(3)]
    merged = merge(parts, tmp_path / "merged")
    for of, expected in ((sensitivities(merged), sensitivities(whole)),
                         (input_sensitivities(merged), input_sensitivities(whole))):
        assert of.keys() == expected.keys() != set()
        for module, value in expected.items():
            assert of[module] == pytest.approx(value, rel=1e-4), module
    merge(parts[::-1], tmp_path / "again")
    assert (tmp_path / "merged").read_bytes() == (tmp_path / "again").read_bytes()


def test_merged_with_statistics_without_it_stays(model, text, tmp_path):
    one = sensitivities(calibrate(model, text, tmp_path / "one", windows=2, context=32))
    calibrate(model, text, tmp_path / "none", windows=6, context=32, sensitivity=0)
    assert sensitivities(merge([tmp_path / "one", tmp_path / "none"], tmp_path / "some")) == one


@pytest.mark.parametrize("stopped", ["model.layers.0", "model.layers.1"])
def test_an_interrupted_run_resumes_to_equal_numbers(model, text, tmp_path, stopped):
    class Interrupted(Exception):
        pass

    def stop(line):
        if line.startswith(stopped):
            raise Interrupted

    whole = calibrate(model, text, tmp_path / "whole", sensitivity=64, **SIZES)
    with pytest.raises(Interrupted):
        calibrate(model, text, tmp_path / "parts", sensitivity=64, progress=stop, **SIZES)
    with pytest.raises(nvfp4.InvalidValueError, match="other arguments"):
        calibrate(model, text, tmp_path / "parts", sensitivity=32, resume=True, **SIZES)
    assert sensitivities(calibrate(model, text, tmp_path / "parts", sensitivity=64, resume=True, **SIZES)) == sensitivities(whole)
    assert (tmp_path / "parts").read_bytes() == (tmp_path / "whole").read_bytes()
    assert {p.name for p in tmp_path.iterdir()} == {"whole", "parts"}


def test_states_that_were_cut_off_are_named(model, text, tmp_path):
    def stop(line):
        if line.startswith("model.layers.0"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        calibrate(model, text, tmp_path / "out", progress=stop, **SIZES)
    states = tmp_path / "out.parts" / "copies-1"
    states.write_bytes(states.read_bytes()[:-1])
    with pytest.raises(nvfp4.FormatError, match="copies-1: is shorter than what was written"):
        calibrate(model, text, tmp_path / "out", resume=True, **SIZES)
    states.unlink()
    with pytest.raises(nvfp4.IoError, match="copies-1: No such file"):
        calibrate(model, text, tmp_path / "out", resume=True, **SIZES)


def test_the_choice_of_bits_uses_it(model, text, tmp_path):
    for sensitivity, of in ((None, "last hidden state"), (0, "outputs")):
        calibrate(model, text, tmp_path / "stats", sensitivity=sensitivity, **SIZES)
        report = nvfp4.quantize_checkpoint(model, tmp_path / of, bits=6, statistics=tmp_path / "stats")
        assert report["error_of"] == of
        assert any("no sensitivity of" in warning for warning in report["warnings"]) == (of == "outputs")


def test_the_choice_of_w4a4_needs_input_sensitivities(model, text, tmp_path):
    calibrate(model, text, tmp_path / "stats", **SIZES)
    report = nvfp4.quantize_checkpoint(model, tmp_path / "out", w4a4=0.5, statistics=tmp_path / "stats")
    assert report["error_of"] == "last hidden state"
    assert report["curve"][0]["w4a16"] == report["curve"][-1]["error"] == 0
    calibrate(model, text, tmp_path / "stats", sensitivity=0, **SIZES)
    with pytest.raises(nvfp4.InvalidValueError, match="has no input sensitivity of"):
        nvfp4.quantize_checkpoint(model, tmp_path / "none", w4a4=0.5, statistics=tmp_path / "stats")


@pytest.mark.parametrize("value", [0.0, -1.0, math.nan, math.inf])
def test_numbers_that_are_not_positive_are_refused(model, text, value, tmp_path):
    statistics = calibrate(model, text, tmp_path / "stats", **SIZES)
    module = "model.layers.1.self_attn.o_proj"
    statistics.tensors[f"{module}.sensitivity"] = torch.tensor([value])
    statistics.save(tmp_path / "stats")
    with pytest.raises(nvfp4.FormatError, match=f"{module}.sensitivity"):
        nvfp4.quantize_checkpoint(model, tmp_path / "out", bits=6, statistics=tmp_path / "stats")


def test_only_who_can_use_it_pays_for_it(model, text, tmp_path, monkeypatch):
    """A run that writes no statistics does not measure it."""
    monkeypatch.setattr(Sensitivity, "start", lambda *_: pytest.fail("it is measured"))
    calibrate(model, text, None, quantize=tmp_path / "out", method="weighted", **SIZES)


def test_unreached_experts_take_the_others_value():
    statistics = Statistics()
    for module, count, squares in (("a", 30.0, 3.0), ("b", 10.0, 9.0), ("c", 20.0, 1e9)):
        statistics.tensors |= {f"{module}.count": torch.tensor([count]), f"{module}.diag": torch.full((4,), squares)}
    errors = {"a": torch.ones(4), "b": 2 * torch.ones(4)}
    lost = Sensitivity._output_error(statistics, [["a"], ["b", "b2"], ["c"], []], errors, 50)
    assert lost == pytest.approx((12 + 72) / 40 * 60 / 50)


def test_the_default_adds_a_tenth_of_the_time():
    for layers in (16, 40, 80, 200):
        tokens = default_tokens(131072, 4 * layers)
        copies = sum(1 + 2 * 4 * (i + 1) for i in range(layers))
        assert copies * tokens <= 0.11 * layers * 131072
    assert default_tokens(131072, 4) == 512 and default_tokens(288, 8) == 16
    assert windows_of_few(512, 4096, 8) == (2, 256)
    assert windows_of_few(512, 32, 4) == (4, 32), "no more than a batch has"
    assert windows_of_few(81, 512, 8) == (1, 81)


def test_fused_layers_and_experts_are_a_group():
    names = ["self_attn.q_proj", "self_attn.o_proj", "self_attn.v_proj", "mlp.experts.gate_up_proj", "mlp.experts.down_proj",
             "mlp.shared_experts.gate_proj", "mlp.shared_experts.up_proj", "mlp.shared_experts.down_proj"]
    weights = [name if ".experts." in name else f"{name}.weight" for name in names]
    assert groups_of(weights) == [[weights[i] for i in group] for group in ((0, 2), (1,), (3, 4), (5, 6), (7,))]


CALLS = {
    "linear": lambda x, w, b: F.linear(x, w, b), "linear, weight by name": lambda x, w, b: F.linear(x, weight=w, bias=b),
    "linear, all by name": lambda x, w, b: F.linear(input=x, weight=w, bias=b),
    "matmul": lambda x, w, b: torch.matmul(x, other=w.T) + b, "@": lambda x, w, b: x @ w.T + b,
    "mm": lambda x, w, b: torch.mm(x, w.T) + b, "x.mm": lambda x, w, b: x.mm(mat2=w.T) + b,
    "addmm": lambda x, w, b: torch.addmm(b, x, w.T), "b.addmm": lambda x, w, b: b.addmm(x, mat2=w.T),
    "addmm, all by name": lambda x, w, b: torch.addmm(input=b / 2, mat1=x, mat2=w.T, beta=2, alpha=1),
    "bmm": lambda x, w, b: torch.bmm(x[None], w.T[None])[0] + b,
    "baddbmm": lambda x, w, b: torch.baddbmm(b[None, None], x[None], w.T[None])[0],
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_a_weight_is_found_in_every_call(call):
    random = torch.Generator().manual_seed(1)
    x, w, b = (torch.randn(*shape, generator=random) for shape in ((5, 64), (32, 64), (32,)))
    plain = call(x, w, b)
    collector = Collector()
    with Watch([(w, [["m"]])], collector):
        assert torch.equal(call(x, w, b), plain)
    squares, count, amax = collector.sums["m"]
    torch.testing.assert_close(squares, x.double().square().sum(0))
    assert count == 5 and amax == x.abs().amax()
    with Perturbed([(w, [["m"]])], ["m"]) as mode:
        changed = call(x, w, b)
    torch.testing.assert_close(changed, F.linear(x, quantized(w), b))
    assert set(mode.errors) == {"m"} and not torch.equal(changed, plain)
    with PerturbedInputs([(w, [["m"]])], ["m"]):
        changed = call(x, w, b)
    torch.testing.assert_close(changed, F.linear(quantized(x, "vector"), w, b))
    assert not torch.equal(changed, plain)


def test_the_command(model, text, tmp_path, capsys):
    sizes = [word for name, n in SIZES.items() for word in (f"--{name}", str(n))]
    run = [str(model), "--text", str(text), "--out", str(tmp_path / "out"), *sizes]
    assert main([*run, "--sensitivity", "0", "--quiet"]) == 0
    assert not sensitivities(Statistics.load(tmp_path / "out"))
    assert main([*run, "--quiet"]) == 0
    assert sensitivities(Statistics.load(tmp_path / "out"))
    with pytest.raises(SystemExit):
        main([*run, "--sensitivity", "-1"])
    capsys.readouterr()
    said = {}
    for given in ([], ["--sensitivity", "0"], ["--sensitivity", "32"]):
        assert main([*run, "--dry-run", *given]) == 0
        said[" ".join(given)] = capsys.readouterr().err
    assert "% more with each layer quantized alone on 16 tokens" in said[""]
    assert "quantized alone" not in said["--sensitivity 0"]
    assert "on 32 tokens" in said["--sensitivity 32"] and "of states with each layer quantized alone" in said["--sensitivity 32"]
