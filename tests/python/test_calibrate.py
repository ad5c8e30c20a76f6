"""nvfp4 calibrate: what it sees is what a model's layers get, and quantizing by it helps."""

import itertools
import json
import shutil
from functools import partial
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
pytest.importorskip("safetensors")

import nvfp4
from calibrate_cases import SIZES, bytes_by_name, write_model, write_text_of_words
from nvfp4._cli import run_here
from nvfp4.calibrate import Statistics, calibrate, calibrate_module, merge
from nvfp4.calibrate.onepass import matches, united

main = partial(run_here, "calibrate")


@pytest.fixture(scope="module", params=["dense", "experts"])
def model(request, tmp_path_factory):
    return write_model(tmp_path_factory.mktemp("calibrate") / request.param, request.param == "experts")


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    return write_text_of_words(tmp_path_factory.mktemp("text") / "text.txt")


def inputs_of_layers(model, text):
    """module -> its inputs [tokens, K], of the whole model at once, experts by their own."""
    from nvfp4.evaluate.text import windows

    loaded = transformers.AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32,
                                                               experts_implementation="eager").eval()
    seen = {}

    def see(name, x):
        seen.setdefault(name, []).append(x.detach().reshape(-1, x.shape[-1]).double())

    def watch_experts(name, module):
        def before(_, args):
            x, index = args[:2]
            for expert in range(module.num_experts):
                rows = x[(index == expert).any(-1)]
                see(f"{name}.{expert}.gate_proj", rows)
                see(f"{name}.{expert}.up_proj", rows)
                gate, up = torch.nn.functional.linear(rows, module.gate_up_proj[expert]).chunk(2, -1)
                see(f"{name}.{expert}.down_proj", module.act_fn(gate) * up)

        module.register_forward_pre_hook(before)

    for name, module in loaded.model.layers.named_modules(prefix="model.layers"):
        if isinstance(module, torch.nn.Linear):
            module.register_forward_pre_hook(lambda _, args, name=name: see(name, args[0]))
        elif name.endswith(".experts"):
            watch_experts(name, module)
    tokens = windows(text, transformers.AutoTokenizer.from_pretrained(model), SIZES["windows"], SIZES["context"])
    with torch.no_grad():
        loaded(tokens[:, :-1])
    return {name: torch.cat(parts) for name, parts in seen.items()}


def test_statistics_are_those_of_the_whole_model(model, text, tmp_path):
    out = tmp_path / "stats.safetensors"
    statistics = calibrate(model, text, out, keep_gram=True, **SIZES)
    inputs = inputs_of_layers(model, text)
    modules = set(statistics.modules())
    assert modules == {m for m in inputs if not m.endswith("mlp.gate")}, "routers are not quantized"
    for module in modules:
        x, tensors = inputs[module], statistics.tensors
        torch.testing.assert_close(tensors[f"{module}.diag"], x.square().sum(0), rtol=1e-4, atol=1e-6)
        assert tensors[f"{module}.count"].item() == len(x)
        torch.testing.assert_close(tensors[f"{module}.amax"].double(), x.abs().amax().reshape(1), rtol=1e-4, atol=1e-6)
        gram = tensors[f"{statistics.same_input.get(module, module)}.gram"].double()
        rows, columns = torch.triu_indices(x.shape[1], x.shape[1])
        torch.testing.assert_close(gram, (x.T @ x)[rows, columns], rtol=1e-3, atol=1e-4)
    again = Statistics.load(out)
    for _ in range(4):  # whatever the order of hashes
        again.save(tmp_path / "again.safetensors")
        assert (tmp_path / "again.safetensors").read_bytes() == out.read_bytes()
    assert again.same_input == statistics.same_input
    assert {k: v.tolist() for k, v in again.tensors.items()} == {k: v.tolist() for k, v in statistics.tensors.items()}


def test_gram_bytes_are_printed_before_a_layer_runs(model, text, tmp_path):
    lines = []
    statistics = calibrate(model, text, tmp_path / "stats", keep_gram=True, progress=lines.append, **SIZES)
    said = next(i for i, line in enumerate(lines) if line.startswith("Gram matrices: "))
    assert said < next(i for i, line in enumerate(lines) if line.startswith("model.layers.0"))
    written = sum(4 * t.numel() for name, t in statistics.tensors.items() if name.endswith(".gram"))
    assert lines[said] == f"Gram matrices: {written / 1e6:.1f} MB in {tmp_path / 'stats'}"


def test_fused_layers_share_a_gram_matrix(model, text, tmp_path):
    statistics = calibrate(model, text, tmp_path / "stats.safetensors", keep_gram=True, **SIZES)
    for module, owner in statistics.same_input.items():
        assert f"{module}.gram" not in statistics.tensors
        assert f"{owner}.gram" in statistics.tensors
    assert statistics.same_input["model.layers.0.self_attn.v_proj"] == "model.layers.0.self_attn.q_proj"
    assert any(m.endswith("up_proj") for m in statistics.same_input)


def output_error(model, quantized, inputs):
    """Σ ‖x (w - ŵ)ᵀ‖² over all quantized layers."""
    from safetensors.torch import load_file

    weights, packed = load_file(model / "model.safetensors"), load_file(quantized / "model.safetensors")
    total = 0
    for module, x in inputs.items():
        if f"{module}.weight_scale_2" not in packed:
            continue
        codes, scales = packed[f"{module}.weight"], packed[f"{module}.weight_scale"].view(torch.uint8)
        w = weights[f"{module}.weight"].double()
        q = nvfp4.QuantizedTensor(codes, scales, packed[f"{module}.weight_scale_2"], w.shape)
        total += (x @ (w - q.dequantize(torch.float32).double()).T).square().sum().item()
    return total


def test_quantizing_by_it_takes_error_off_the_output(model, text, tmp_path):
    calibrate(model, text, tmp_path / "stats.safetensors", keep_gram=True, **SIZES)
    inputs = inputs_of_layers(model, text)
    errors = {}
    for name, options in dict(mse=dict(method="mse"), weighted={}, gptq=dict(method="gptq:0"),
                              descent=dict(method="gptq")).items():
        report = nvfp4.quantize_checkpoint(model, tmp_path / name, statistics=tmp_path / "stats.safetensors", **options)
        errors[name] = output_error(model, tmp_path / name, inputs)
        assert report["method"] == {"descent": "gptq"}.get(name, name)
        if name == "descent":
            rows = [t["rows"] for t in report["tensors"] if t["action"] == "quantized"]
            assert sum(r["descent"] for r in rows) > 10 * sum(r["mse"] + r["weighted"] for r in rows)
    assert errors["weighted"] < errors["mse"]
    assert errors["gptq"] < 0.8 * errors["weighted"]
    assert errors["descent"] < 0.95 * errors["gptq"]


def test_the_page_says_what_was_decided(model, text, tmp_path):
    stats, run = tmp_path / "stats", tmp_path / "run.json"
    calibrate(model, text, stats, keep_gram=True, **SIZES)
    report = nvfp4.quantize_checkpoint(model, tmp_path / "out", method="gptq", statistics=stats)
    run.write_text(json.dumps(report))
    nvfp4.compare(model, tmp_path / "out", html=tmp_path / "page.html", run=run, statistics=stats)
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "Output error by layer" in page
    has_experts = any(".experts." in t["name"] for t in report["tensors"])
    assert ("Tokens of the calibration text for each expert" in page) == has_experts
    with pytest.raises(nvfp4.InvalidValueError, match="which html writes"):
        nvfp4.compare(model, tmp_path / "out", run=run)


def test_bytes_do_not_depend_on_threads_nor_instructions(model, text, tmp_path):
    calibrate(model, text, tmp_path / "stats.safetensors", keep_gram=True, **SIZES)
    contents = set()
    for backend in [b["name"] for b in nvfp4._core.backends() if b["available"]]:
        out = tmp_path / backend
        nvfp4.quantize_checkpoint(model, out, method="gptq:1", statistics=tmp_path / "stats.safetensors",
                                  backend=backend)
        contents.add((out / "model.safetensors").read_bytes())
    assert len(contents) == 1


def test_statistics_of_two_texts_add_up(model, text, tmp_path):
    files = [tmp_path / name for name in ("all", "first", "second", "merged")]
    documents = text.read_text(encoding="utf-8").split("\n\x1e\n")
    for file, part in zip(files[1:3], (documents[:5], documents[5:])):
        file.with_suffix(".txt").write_text("\n\x1e\n".join(part), encoding="utf-8")
        calibrate(model, file.with_suffix(".txt"), file, windows=4, context=32)
    merged = merge(files[1:3], files[3])
    first, second = Statistics.load(files[1]), Statistics.load(files[2])
    module = "model.layers.1.self_attn.o_proj"
    for kind, both in (("diag", lambda a, b: a + b), ("count", lambda a, b: a + b), ("amax", torch.maximum)):
        key = f"{module}.{kind}"
        assert torch.equal(merged.tensors[key], both(first.tensors[key], second.tensors[key]))
    second.tensors[f"{module}.diag"] = torch.zeros(3, dtype=torch.float64)
    second.save(files[2])
    with pytest.raises(nvfp4.InvalidValueError, match="another model"):
        merge(files[1:3], files[3])


def test_gram_matrices_of_two_dtypes_add_up(tmp_path):
    values = torch.tensor([1.0, 2, 3])
    files = [tmp_path / name for name in ("one", "two")]
    for file, dtype in zip(files, (torch.float32, torch.float64)):
        statistics = Statistics()
        statistics.tensors |= {"m.gram": values.to(dtype), "m.diag": torch.ones(2, dtype=torch.float64)}
        statistics.save(file)
    for order in (files, files[::-1]):
        merged = merge(order, tmp_path / "merged")
        assert torch.equal(merged.tensors["m.gram"], 2 * values.double())
        again = Statistics.load(tmp_path / "merged")
        assert torch.equal(again.tensors["m.gram"], 2 * values.double())
        assert torch.equal(again.tensors["m.diag"], torch.full((2,), 2, dtype=torch.float64))


def test_every_look_at_statistics_finds_tensors(tmp_path):
    statistics, gram = Statistics(), torch.tensor([1.0, 2, 3])
    statistics.tensors |= {"m.gram": gram, "m.diag": torch.ones(2, dtype=torch.float64)}
    statistics.save(tmp_path / "stats")
    tensors = Statistics.load(tmp_path / "stats").tensors
    for look in (lambda: tensors["m.gram"], lambda: tensors.get("m.gram"), lambda: dict(tensors)["m.gram"],
                 lambda: {**tensors}["m.gram"], lambda: dict(tensors.items())["m.gram"], lambda: ({} | tensors)["m.gram"]):
        assert torch.equal(look(), gram)
    assert tensors.get("n.gram") is None


@pytest.mark.parametrize("wrong", [torch.tensor(1.0), torch.ones(2, 2), torch.ones(3, dtype=torch.int32)])
def test_what_is_no_triangle_is_no_gram_matrix(wrong, tmp_path):
    statistics = Statistics()
    statistics.tensors |= {"m.gram": wrong}
    statistics.save(tmp_path / "one")
    for read in (Statistics.load, lambda file: merge([file], tmp_path / "merged")):
        with pytest.raises(nvfp4.FormatError, match=r"m.gram is .* must be F32 or F64"):
            read(tmp_path / "one")


def test_ranks_share_a_text_and_add_up(model, text, tmp_path):
    whole = calibrate(model, text, tmp_path / "whole.safetensors", keep_gram=True, **SIZES)
    for rank in (2, 0, 1):
        calibrate(model, text, tmp_path / "stats.safetensors", keep_gram=True, rank=rank, ranks=3, **SIZES)
    files = [tmp_path / f"stats.rank-{rank}-of-3.safetensors" for rank in range(3)]
    merged = set()
    for order in itertools.permutations(files):
        merge(order, tmp_path / "merged.safetensors")
        merged.add((tmp_path / "merged.safetensors").read_bytes())
    assert len(merged) == 1, "whatever their order"
    together = Statistics.load(tmp_path / "merged.safetensors")
    whole = Statistics.load(tmp_path / "whole.safetensors")
    assert together.same_input == whole.same_input
    assert together.tensors.keys() == whole.tensors.keys()
    for key, tensor in whole.tensors.items():
        if key.endswith((".sensitivity", ".change", ".input_sensitivity")):  # each rank measures on its own text
            continue
        exact = key.endswith((".count", ".amax"))
        tolerance = 0 if exact else 1e-12 if key.endswith(".diag") else 1e-5 * tensor.abs().max()
        assert (together.tensors[key] - tensor).abs().max() <= tolerance * max(1, tensor.abs().max()), key
    with pytest.raises(nvfp4.InvalidValueError, match="rank 2 is not given"):
        merge(files[:2], tmp_path / "none")
    shutil.copy(files[0], tmp_path / "again")
    with pytest.raises(nvfp4.InvalidValueError, match="is of rank 0, as is"):
        merge([*files, tmp_path / "again"], tmp_path / "none")
    assert not (tmp_path / "none").exists()


def test_ranks_of_the_command(model, text, tmp_path, capsys, monkeypatch):
    sizes = [word for name, n in SIZES.items() for word in (f"--{name}", str(n))]
    run = [str(model), "--text", str(text), "--quiet", *sizes]
    assert main([*run, "--out", str(tmp_path / "a"), "--rank", "1", "--ranks", "2"]) == 0
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert main([*run, "--out", str(tmp_path / "b"), "--ranks", "auto"]) == 0
    assert (tmp_path / "a.rank-1-of-2").read_bytes() == (tmp_path / "b.rank-1-of-2").read_bytes()
    assert main([*run, "--out", str(tmp_path / "c"), "--rank", "0", "--ranks", "4"]) == 1
    assert "must be at most 3, the number of batches" in capsys.readouterr().err
    assert main([*run, "--quantize", str(tmp_path / "c"), "--rank", "0", "--ranks", "2"]) == 1
    assert "merge their statistics first" in capsys.readouterr().err


def test_the_command_says_what_is_wrong(model, text, tmp_path, capsys):
    out = str(tmp_path / "stats.safetensors")
    run = [str(model), "--text", str(text), "--out", out]
    assert main([*run, "--windows", "9", "--context", "32", "--keep-gram", "--dry-run"]) == 0
    assert "Gram matrices: " in capsys.readouterr().err
    assert not (tmp_path / "stats.safetensors").exists()
    assert main([str(model), "--text", str(tmp_path / "none"), "--out", out]) == 1
    assert main([*run, "--context", "4000"]) == 1
    assert "4000" in capsys.readouterr().err
    assert main(["--merge", str(model / "model.safetensors"), "--out", out]) == 1
    assert "no file of statistics" in capsys.readouterr().err
    for device in ("nothing", "mps" if torch.cuda.is_available() else "cuda"):
        assert main([*run, "--device", device]) == 1
        assert f"--device {device}: " in capsys.readouterr().err
    for wrong in (["--windows", "0"], ["--text"]):
        with pytest.raises(SystemExit):
            main([*run, *wrong])
    quantized = tmp_path / "quantized"
    nvfp4.quantize_checkpoint(model, quantized)
    assert main([str(quantized), *run[1:]]) == 1
    assert "quantized" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["calibrate", "evaluate"])
@pytest.mark.parametrize(("name", "content"), [
    ("tokenizer.json", None), ("tokenizer.json", "{"),
    ("config.json", "{"), ("config.json", '{"model_type": "nothing"}'), ("config.json", '{"model_type": "vit"}')])
def test_what_transformers_does_not_load_is_one_line(text, tmp_path, capsys, command, name, content):
    folder, out = write_model(tmp_path / "model", experts=False), tmp_path / "out"
    (folder / name).unlink()
    if content is not None:
        (folder / name).write_text(content)
    words = [str(folder), "--windows", "3", "--context", "32", "--text", str(text)]
    assert run_here(command, [*words, *(["--out", str(out)] if command == "calibrate" else [])]) == 1
    said, hint = capsys.readouterr().err.splitlines()[-2:]
    assert said.startswith(f"nvfp4: error: {folder}") and hint.startswith("hint: ")
    assert "tokenizer" in said if name == "tokenizer.json" else "cannot load" in said or "parse error" in said
    assert not out.exists()


def test_nothing_but_statistics_is_replaced(model, text, tmp_path, capsys):
    (tmp_path / "notes").write_text("mine")
    (tmp_path / "folder").mkdir()
    kept = {file: file.read_bytes() for file in (model / "model.safetensors", model / "config.json", tmp_path / "notes")}
    for out, says in ((model / "model.safetensors", "is inside model"), (model / "new", "is inside model"),
                      (tmp_path / "notes", "holds no statistics"), (tmp_path / "folder", "must be a regular file"),
                      (tmp_path / "notes" / "out", "cannot create a file")):
        words = [str(model), "--text", str(text), "--out", str(out), *(w for n, s in SIZES.items() for w in (f"--{n}", str(s)))]
        assert main(words) == 1
        err = capsys.readouterr().err
        assert says in err and "layers" not in err
    with pytest.raises(nvfp4.InvalidValueError, match="is inside model"):
        calibrate(model, text, None, quantize=model / "new", **SIZES)
    stats = tmp_path / "stats"
    calibrate(model, text, stats, **SIZES)
    calibrate(model, text, stats, **SIZES)
    assert main(["--merge", str(stats), str(tmp_path / "none"), "--out", str(tmp_path / "sum")]) == 1
    assert capsys.readouterr().err.startswith(f"nvfp4: error: {tmp_path / 'none'}: ")
    assert main(["--merge", str(stats), "--out", str(tmp_path / "notes")]) == 1
    before = stats.read_bytes()
    assert main(["--merge", str(stats), "--out", str(stats)]) == 1
    assert "must be another" in capsys.readouterr().err and stats.read_bytes() == before
    assert {file: file.read_bytes() for file in kept} == kept
    assert not (model / "new").exists()


@pytest.mark.parametrize("name", ["stats.parts", "stats.parts.done"])
def test_folders_of_others_are_not_removed(model, text, tmp_path, name):
    (tmp_path / name).mkdir()
    (tmp_path / name / "mine").write_text("mine")
    with pytest.raises(nvfp4.InvalidValueError, match="calibrate did not write it"):
        calibrate(model, text, tmp_path / "stats", **SIZES)
    assert (tmp_path / name / "mine").read_text() == "mine"


def test_the_text_is_not_replaced(model, tmp_path):
    text = tmp_path / "stats"
    write_text_of_words(text)
    before = text.read_bytes()
    with pytest.raises(nvfp4.InvalidValueError, match="must be another"):
        calibrate(model, text, text, **SIZES)
    assert text.read_bytes() == before


def test_states_of_nan_are_refused(text, tmp_path, capsys):
    from safetensors.torch import load_file, save_file

    folder = write_model(tmp_path / "model", experts=False)
    tensors = load_file(folder / "model.safetensors")
    tensors["model.layers.0.mlp.down_proj.weight"][0, 0] = float("nan")
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    sizes = [word for name, n in SIZES.items() for word in (f"--{name}", str(n))]
    assert main([str(folder), "--text", str(text), "--out", str(tmp_path / "out"), "--quiet", *sizes]) == 1
    assert "model.layers.1.self_attn.q_proj: its input holds NaN" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_unread_embedding_rows_are_nan(text, tmp_path, monkeypatch):
    """Rows are read for embedding() alone; what stands for the others must not pass for them."""
    folder = write_model(tmp_path / "model", experts=False)
    monkeypatch.setattr(torch.nn.Embedding, "forward", lambda self, ids: self.weight[ids])
    with pytest.raises(nvfp4.FormatError, match="model.layers.0.self_attn.q_proj: its input holds NaN"):
        calibrate(folder, text, tmp_path / "out", **SIZES)


@pytest.mark.parametrize("address", ["s3://bucket/stats", "s3:/bucket/stats"])
def test_addresses_of_stores_are_refused(model, text, tmp_path, address, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run = [str(model), "--text", str(text), "--quiet"]
    for words in (["--out", address], ["--quantize", address], ["--out", address, "--dry-run"]):
        assert main([*run, *words]) == 1
        assert f"{address}: is an address, must be a path" in capsys.readouterr().err
    calibrate(model, text, tmp_path / "one", windows=1, context=8)
    assert main(["--merge", str(tmp_path / "one"), "--out", address]) == 1
    assert "is an address" in capsys.readouterr().err
    with pytest.raises(nvfp4.UnsupportedError, match="is an address"):
        nvfp4.quantize_checkpoint(model, Path(address))
    assert [file.name for file in tmp_path.iterdir()] == ["one"]


@pytest.mark.parametrize("method", ["gptq", "weighted"])
@pytest.mark.parametrize("format", ["modelopt", "compressed-tensors"])
def test_quantizing_in_one_pass_gives_the_same_bytes(model, text, tmp_path, method, format):
    calibrate(model, text, tmp_path / "stats", keep_gram=method == "gptq", **SIZES)
    nvfp4.quantize_checkpoint(model, tmp_path / "two", statistics=tmp_path / "stats", method=method, format=format)
    calibrate(model, text, None, quantize=tmp_path / "one", method=method, format=format, **SIZES)
    assert bytes_by_name(tmp_path / "one") == bytes_by_name(tmp_path / "two")
    one, two = (json.loads((tmp_path / n / "config.json").read_text())["quantization_config"] for n in ("one", "two"))
    listed = [c.pop("ignore", None) or c.pop("exclude_modules") for c in (one, two)]
    assert one == two
    names = {name.rpartition(".")[0] for name in bytes_by_name(tmp_path / "one")}
    names = {name for name in names if not name.endswith(("norm", "embed_tokens"))}  # no loader quantizes these
    excluded = [{name for name in names if any(matches(entry, name) for entry in entries)} for entries in listed]
    assert excluded[0] == excluded[1] and all("lm_head" in entries for entries in listed)
    assert not nvfp4.verify(tmp_path / "one")["findings"]
    assert {p.name for p in tmp_path.iterdir()} == {"stats", "one", "two"}


@pytest.mark.parametrize("entries, tensors, right", [
    (["lm_head", "*gate"], ["a.gate.weight", "a.gate_proj.weight_scale"], ["lm_head", "*gate"]),
    (["*layers.1.*", "*up"], ["layers.1.up.weight", "layers.1.up.weight_scale", "layers.0.up.weight"], ["layers.0.up"]),
    (["*experts*"], ["a.0.experts.0.w1.weight", "a.1.experts.0.w1.weight", "a.1.experts.0.w1.weight_scale"],
     ["a.0.experts*"]),
    (["re:(.*\\.)?up$"], ["a.up.weight_packed", "a.up.weight_scale", "b.up.weight"], ["b.up"])])
def test_exclusions_of_parts_become_those_of_the_whole(entries, tensors, right):
    for key in ("ignore", "exclude_modules"):
        assert united([{"format": {key: entries}}, {"format": {key: entries[:1]}}], tensors) == {"format": {key: right}}
    assert united([{"targets": entries}], tensors) == {"targets": entries}


def test_a_link_out_of_the_model_is_refused(model, text, tmp_path):
    copy = tmp_path / "model"
    shutil.copytree(model, copy)
    (tmp_path / "private.txt").write_text("private")
    (copy / "notes.txt").symlink_to(tmp_path / "private.txt")
    with pytest.raises(nvfp4.IoError, match="notes.txt"):
        calibrate(copy, text, None, quantize=tmp_path / "out", **SIZES)
    assert {p.name for p in tmp_path.iterdir()} == {"model", "private.txt"}


def same_statistics(one, two):
    one, two = Statistics.load(one), Statistics.load(two)
    return one.same_input == two.same_input and one.tensors.keys() == two.tensors.keys() and all(
        torch.equal(t, two.tensors[name]) for name, t in one.tensors.items())


class Interrupted(Exception):
    pass


@pytest.mark.parametrize("one_pass", [False, True])
def test_an_interrupted_run_goes_on(model, text, tmp_path, one_pass):
    def options(name):
        return dict(quantize=tmp_path / f"{name}.model") if one_pass else dict(keep_gram=True)

    def stop(line):
        if line.startswith("model.layers.0"):
            raise Interrupted

    whole = calibrate(model, text, tmp_path / "whole", **options("whole"), **SIZES)
    with pytest.raises(Interrupted):
        calibrate(model, text, tmp_path / "parts", progress=stop, **options("parts"), **SIZES)
    with pytest.raises(nvfp4.InvalidValueError, match="other arguments"):
        calibrate(model, text, tmp_path / "parts", resume=True, **options("parts"), **{**SIZES, "windows": 8})
    lines = []
    calibrate(model, text, tmp_path / "parts", resume=True, progress=lines.append, **options("parts"), **SIZES)
    assert "1 layers were done before" in lines
    assert not any(line.startswith("model.layers.0") for line in lines)
    assert same_statistics(tmp_path / "parts", tmp_path / "whole")
    if one_pass:
        assert bytes_by_name(tmp_path / "parts.model") == bytes_by_name(tmp_path / "whole.model")
    assert whole.modules() and not list(tmp_path.glob("*.parts"))


def test_a_data_set_equals_its_text(model, text, tmp_path):
    datasets = pytest.importorskip("datasets")
    documents = text.read_text(encoding="utf-8").split("\n\x1e\n")
    found = datasets.Dataset.from_dict({"words": documents})
    found.save_to_disk(tmp_path / "folder")
    found.to_parquet(tmp_path / "a.parquet")
    (tmp_path / "a.jsonl").write_text("".join(json.dumps({"words": d}) + "\n" for d in documents))
    calibrate(model, text, tmp_path / "text", **SIZES)
    for name in ("folder", "a.parquet", "a.jsonl"):
        calibrate(model, None, tmp_path / "set", dataset=tmp_path / name, column="words", **SIZES)
        assert same_statistics(tmp_path / "set", tmp_path / "text")
    with pytest.raises(nvfp4.InvalidValueError, match="no column text; has words"):
        calibrate(model, None, tmp_path / "set", dataset=tmp_path / "folder", **SIZES)


def test_a_data_set_needs_its_package(model, tmp_path, monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "datasets", None)
    (tmp_path / "a.jsonl").write_text('{"text": "a"}\n')
    with pytest.raises(nvfp4.UnsupportedError, match="needs the Python package datasets"):
        calibrate(model, None, tmp_path / "set", dataset=tmp_path / "a.jsonl", **SIZES)
    with pytest.raises(nvfp4.IoError, match="none.jsonl"):
        calibrate(model, None, tmp_path / "set", dataset=tmp_path / "none.jsonl", **SIZES)


def test_a_dry_run_needs_the_configuration_alone(model, tmp_path, capsys):
    import shutil

    (tmp_path / "model").mkdir()
    shutil.copy(model / "config.json", tmp_path / "model")
    assert main([str(tmp_path / "model"), "--dry-run", "--quantize", str(tmp_path / "out"), "--windows", "9"]) == 0
    said = capsys.readouterr().err
    for word in ("time: ", "memory: ", "Gram matrices: ", "disk: ", "4608 tokens"):
        assert word in said
    assert not (tmp_path / "out").exists()


def test_unused_layer_of_a_module_has_count_zero():
    module = torch.nn.ModuleDict({"used": torch.nn.Linear(16, 8), "unused": torch.nn.Linear(32, 8)})
    module.forward = lambda x: module["used"](x)
    statistics = calibrate_module(module, lambda: module(torch.ones(3, 16)))
    assert sorted(statistics.modules()) == ["unused", "used"] and statistics.unseen() == ["unused"]
    assert statistics.tensors["used.count"] == 3 and statistics.tensors["unused.diag"].shape == (32,)
