"""Experts that nvfp4.calibrate reads one by one give the bytes that their stack in memory gives."""

import copy
import threading
import weakref

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
pytest.importorskip("safetensors")

import nvfp4
from calibrate_cases import SIZES, bytes_by_name, tokenizer_of_words, write_model, write_text_of_words
from nvfp4 import calibrate as calibration
from nvfp4.calibrate import Statistics, blocks, calibrate, experts
from nvfp4.calibrate.turns import Turns
from test_expert_families import FAMILIES

NAMES = ("mixtral", "qwen3_moe", "deepseek_v3", "gpt_oss", "glm4_moe", "llama4", "olmoe", "minimax_m2")
WORDS = dict(vocab_size=32, pad_token_id=0, bos_token_id=0, eos_token_id=0)


def write_family(folder, name, **changes):
    model, config, arguments, _ = FAMILIES[name]
    torch.manual_seed(3)
    getattr(transformers, model)(getattr(transformers, config)(**copy.deepcopy(arguments | WORDS | changes))).to(
        torch.bfloat16).save_pretrained(folder)
    tokenizer_of_words().save_pretrained(folder)
    return folder


def of_no_module(layer):
    return {}, {}


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    return write_text_of_words(tmp_path_factory.mktemp("text") / "text.txt")


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", NAMES)
def test_statistics_equal_those_of_the_stack(name, dtype, text, tmp_path, monkeypatch):
    model, read = write_family(tmp_path / "model", name), experts.Source.read
    asked = []

    def watched(source, expert, *given):
        asked.append(expert)
        return read(source, expert, *given)

    monkeypatch.setattr(experts.Source, "read", watched)
    calibrate(model, text, tmp_path / "streamed", keep_gram=True, dtype=dtype, **SIZES)
    assert set(asked) == set(range(4))
    monkeypatch.setattr(blocks, "streamed_modules", of_no_module)
    asked.clear()
    calibrate(model, text, tmp_path / "whole", keep_gram=True, dtype=dtype, **SIZES)
    assert not asked
    assert (tmp_path / "streamed").read_bytes() == (tmp_path / "whole").read_bytes()


@pytest.mark.parametrize("name", ["mixtral", "gpt_oss", "llama4"])
def test_one_pass_writes_what_two_steps_write(name, text, tmp_path):
    model = write_family(tmp_path / "model", name)
    calibrate(model, text, tmp_path / "stats", keep_gram=True, **SIZES)
    nvfp4.quantize_checkpoint(model, tmp_path / "two", statistics=tmp_path / "stats", method="gptq")
    calibrate(model, text, None, quantize=tmp_path / "one", **SIZES)
    assert bytes_by_name(tmp_path / "one") == bytes_by_name(tmp_path / "two")


@pytest.mark.parametrize("name", NAMES)
def test_experts_see_their_routed_tokens(name, text, tmp_path):
    """Llama 4's own module multiplies zeros for all others, and would count them."""
    statistics = calibrate(write_family(tmp_path / "model", name), text, tmp_path / "stats", **SIZES)
    counts = {}
    for module in statistics.modules():
        layer, is_expert, expert = module.partition(".experts.")
        if is_expert and module.endswith("down_proj") or module.endswith(".w2"):
            counts.setdefault(layer, []).append(statistics.tensors[f"{module}.count"].item())
    assert counts and all(len(of) == 4 and sum(of) == 2 * SIZES["windows"] * SIZES["context"]
                          for of in counts.values()), counts


def test_llama4_is_the_sum_of_its_experts(tmp_path):
    """By transformers' own module; only the order of the sum differs."""
    model = transformers.Llama4ForCausalLM.from_pretrained(write_family(tmp_path, "llama4"), dtype=torch.float64).eval()
    moe = next(m for m in model.modules() if type(m).__name__ == "Llama4TextMoe")
    x = torch.randn(3, 11, 64, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        expected, logits = moe(x)
        found, found_logits = experts.forward_llama4(moe, x)
    assert torch.equal(logits, found_logits)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("windows, room, reads", [(9, 2, 3), (9, 3, 3), (9, 8, 1), (2, 0, 2)])
def test_an_expert_is_read_once_and_alone(windows, room, reads, text, tmp_path, monkeypatch):
    """Side by side are a batch, of a window here, and as many as have room beside it."""
    model, read, alive, asked = write_family(tmp_path / "model", "mixtral"), experts.Source.read, [], []

    def watched(source, expert, *given):
        matrix = read(source, expert, *given)
        assert not any(known() is not None for known in alive), f"a matrix is left beside one of {expert}"
        alive.append(weakref.ref(matrix))
        asked.append((min(source.files), expert))
        return matrix

    monkeypatch.setattr(experts.Source, "read", watched)
    monkeypatch.setattr(calibration, "held", lambda *_: 1000)
    threads = threading.active_count()
    calibrate(model, text, tmp_path / "stats", windows=windows, context=32, batch=1, gram_memory=room * 1000,
              sensitivity=0)
    assert {asked.count(key) for key in asked} == {reads} and len(asked) == 2 * 4 * 2 * reads
    assert threading.active_count() == threads


@pytest.mark.parametrize("name, room, reads", [("mixtral", 8, 9), ("dense", 2, 3), ("dense", 0, 9)])
def test_one_linear_matrix_is_in_memory(name, room, reads, text, tmp_path, monkeypatch):
    """In a layer with experts, each batch reads its own linear matrices."""
    model = write_family(tmp_path / "model", name) if name != "dense" else write_model(tmp_path / "model", False)
    read, alive, asked = experts.Source.read_whole, [], []

    def watched(source, *given):
        matrix = read(source, *given)
        assert not any(known() is not None for known in alive)
        alive.append(weakref.ref(matrix))
        asked.append(min(source.files))
        return matrix

    monkeypatch.setattr(experts.Source, "read_whole", watched)
    monkeypatch.setattr(calibration, "held", lambda *_: 1000)
    calibrate(model, text, tmp_path / "stats", windows=9, context=32, batch=1, gram_memory=room * 1000,
              sensitivity=0)
    assert {asked.count(key) for key in asked} == {reads}
    assert len(set(asked)) == (2 * 4 if name == "mixtral" else 2 * 7)


class AllAtOnce(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.num_experts = 3
        self.up, self.bias = torch.nn.Parameter(torch.zeros(3, 2, 2)), torch.nn.Parameter(torch.zeros(3, 2))

    def forward(self, x):
        return torch.bmm(x, self.up) + self.bias[0]


class OneByOne(AllAtOnce):
    def forward(self, x):
        return sum(x @ self.up[expert] for expert in range(self.up.shape[0]))


class Slices(AllAtOnce):
    def forward(self, x):
        return sum(x @ self.up[expert:].sum(0) for expert in range(3))


class Gathers(AllAtOnce):
    def forward(self, x, experts):
        return torch.bmm(x, self.up[experts])


def test_single_matrix_modules_are_known_by_forward():
    assert experts.takes_one_at_a_time(OneByOne())
    assert not any(experts.takes_one_at_a_time(kind()) for kind in (AllAtOnce, Slices, Gathers))
    found, others = experts.streamed_modules(torch.nn.ModuleDict(dict(
        a=OneByOne(), b=Slices(), c=torch.nn.Conv1d(3, 3, 3))))
    assert list(found) == ["a"] and others == {"b": "what Slices does with its experts is not known"}


def test_other_modules_are_named_and_read_whole(text, tmp_path, monkeypatch):
    model, lines = write_family(tmp_path / "model", "mixtral"), []
    calibrate(model, text, tmp_path / "streamed", progress=lines.append, **SIZES)
    assert not any("as a whole" in line for line in lines)
    monkeypatch.setattr(experts, "takes_one_at_a_time", lambda module: False)
    calibrate(model, text, tmp_path / "whole", progress=lines.append, **SIZES)
    assert [line for line in lines if "as a whole" in line] == [
        "model.layers.0.mlp.experts is read as a whole: what MixtralExperts does with its experts is not known"]
    assert (tmp_path / "streamed").read_bytes() == (tmp_path / "whole").read_bytes()


def change_tensors(model, change):
    from safetensors.torch import load_file, save_file

    tensors = load_file(model / "model.safetensors")
    change(tensors)
    save_file({name: t.contiguous() for name, t in tensors.items()}, model / "model.safetensors", {"format": "pt"})


def test_unfitting_experts_are_named(text, tmp_path):
    model = write_family(tmp_path / "model", "mixtral")
    name = next(n for n in bytes_by_name(model) if ".layers.1." in n and ".experts.2.w2." in n)
    change_tensors(model, lambda tensors: tensors.update({name: tensors[name][:, :32]}))
    with pytest.raises(nvfp4.Error, match="experts"):
        calibrate(model, text, tmp_path / "stats", **SIZES)
    change_tensors(model, lambda tensors: tensors.pop(name))
    with pytest.raises(nvfp4.Error, match="experts"):
        calibrate(model, text, tmp_path / "stats", **SIZES)
    assert not (tmp_path / "stats").exists()


def test_batches_take_turns():
    done, opened = [], []

    def job(name, keys):
        for key in keys:
            Turns.wait_for(key)
            done.append((name, key))

    Turns(opened.append).run([lambda: job("a", [1, 2, 5]), lambda: job("b", []), lambda: job("c", [2, 3, 5])])
    assert opened == [1, 2, 3, 5]
    assert done == [("a", 1), ("a", 2), ("c", 2), ("c", 3), ("a", 5), ("c", 5)]


def test_an_error_in_one_batch_ends_the_others():
    threads, left = set(threading.enumerate()), []

    def fails():
        Turns.wait_for(1)
        raise ValueError("of a batch")

    def waits():
        try:
            Turns.wait_for(1)
            Turns.wait_for(2)
        finally:
            left.append(True)

    for jobs in ([waits, fails, waits], [fails, waits]):
        with pytest.raises(ValueError, match="of a batch"):
            Turns(lambda key: None).run(jobs)
    assert len(left) == 3 and set(threading.enumerate()) <= threads
