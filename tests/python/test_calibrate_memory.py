"""Tests of the memory of nvfp4.calibrate while a layer runs, and while statistics are written."""

import weakref
from functools import partial

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
pytest.importorskip("safetensors")

import nvfp4
from safetensors import safe_open

from calibrate_cases import SIZES, tokenizer_of_words, write_model, write_text_of_words
from memory_cases import most_memory, needs_linux
from nvfp4.calibrate import Statistics, calibrate, collect
from nvfp4.calibrate.blocks import Blocks
from nvfp4.calibrate.collect import Collector
from nvfp4.calibrate.estimate import Estimate, factor_bytes, size
from nvfp4.calibrate.parts import Parts
from nvfp4.calibrate.spool import Spool
from nvfp4.calibrate.statistics import Later, read_later, write_tensors

DEPTH, EXPERTS, BATCHES = 256, 12, 3


def held(collector):
    """Bytes of inputs and Gram matrices."""
    tensors = [*collector.grams.values(), *(x for kept in collector.inputs.values() for x in kept)]
    return sum(t.untyped_storage().nbytes() for t in tensors)


def taken(collector, name):
    return torch.cat(list(collector.take_gram(name)))


def shown(rows, dtype=torch.float32, **given):
    """A collector of experts that saw `rows` tokens of each batch, and their inputs."""
    random, collector, inputs = torch.Generator().manual_seed(1), Collector(keep_gram=True, **given), {}
    for _ in range(BATCHES):
        for expert in range(EXPERTS):
            x = torch.randn(rows, DEPTH, generator=random).to(dtype)
            inputs.setdefault(f"e{expert}", []).append(x.clone())
            collector.add([f"e{expert}"], x)
            x.zero_()  # as a model may do
        collector.forget_inputs()
    return collector, {name: torch.cat(parts).double() for name, parts in inputs.items()}


@pytest.mark.parametrize("rows, dtype", [(5, torch.float32), (5, torch.bfloat16), (80, torch.float32),
                                         (90, torch.float32), (300, torch.bfloat16)])
def test_few_tokens_are_kept_as_inputs(rows, dtype, tmp_path):
    collector, inputs = shown(rows, dtype)
    few = rows * BATCHES < DEPTH
    assert held(collector) == EXPERTS * DEPTH * (rows * BATCHES * dtype.itemsize if few else DEPTH * 4)
    statistics = Statistics()
    collector.move_to(statistics)
    statistics.save(tmp_path / "statistics")
    loaded = Statistics.load(tmp_path / "statistics")
    at = torch.triu_indices(DEPTH, DEPTH)
    for name, x in inputs.items():
        assert torch.allclose(loaded.tensors[f"{name}.gram"].double(), (x.T @ x)[tuple(at)], rtol=1e-4, atol=1e-4 * len(x))


@pytest.mark.parametrize("rows", [5, 300])
def test_gram_matrices_leave_memory_as_they_are_written(rows, tmp_path, monkeypatch):
    collector, _ = shown(rows)
    before, left, whole = held(collector), [], collect.upper_triangle

    def watched(matrix):
        left.append(held(collector))  # without this one
        return whole(matrix)

    monkeypatch.setattr(collect, "upper_triangle", watched)
    statistics = Statistics()
    collector.move_to(statistics)
    statistics.save(tmp_path / "statistics")
    assert left == [before * (EXPERTS - 1 - i) // EXPERTS for i in range(EXPERTS)]


@pytest.mark.parametrize("matrices", [0, 1, 2.5, 20])
@pytest.mark.parametrize("rows, dtype", [(5, torch.bfloat16), (90, torch.float32), (300, torch.bfloat16)])
def test_spooled_inputs_change_no_bit(rows, dtype, matrices, tmp_path):
    memory = int(matrices * DEPTH * DEPTH * 4)
    spool = Spool(tmp_path)
    collector, _ = shown(rows, dtype, memory=memory, spool=spool)
    needed = EXPERTS * DEPTH * min(rows * BATCHES * dtype.itemsize, DEPTH * 4)
    assert held(collector) <= memory
    assert (held(collector) == needed) == (needed <= memory) == (not spool.places)
    assert not list(tmp_path.iterdir())  # the file has no name
    kept, _ = shown(rows, dtype)
    names = list(collector.places)
    for name in names:
        assert torch.equal(taken(collector, name), taken(kept, name))
    assert held(collector) == 0 and not spool.places
    assert names == [f"e{e}" for e in range(EXPERTS)]


def test_a_full_disk_is_named(tmp_path):
    spool = Spool(tmp_path / "none")
    with pytest.raises(nvfp4.IoError, match="none: inputs of a layer: No such file"):
        shown(5, memory=0, spool=spool)


@pytest.mark.parametrize("one_pass", [False, True])
def test_memory_for_gram_matrices_changes_no_byte(one_pass, tmp_path):
    model, text = write_model(tmp_path / "model", experts=True), write_text_of_words(tmp_path / "text")
    for memory, name in ((4 << 30, "a"), (0, "b")):
        given = dict(quantize=tmp_path / f"{name}.model") if one_pass else dict(keep_gram=True)
        calibrate(model, text, tmp_path / name, gram_memory=memory, **given, **SIZES)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    if one_pass:
        files = sorted(f.name for f in (tmp_path / "a.model").iterdir())
        assert all((tmp_path / "a.model" / f).read_bytes() == (tmp_path / "b.model" / f).read_bytes() for f in files)


def test_one_tensor_at_a_time_is_written(tmp_path):
    """Hidden states are written so, and the layer that one pass gives to the quantizer."""
    alive, most = [], 0

    def make(i):
        nonlocal most
        t = torch.full((3, i + 1), i, dtype=torch.bfloat16)
        alive.append(weakref.ref(t))
        most = max(most, sum(a() is not None for a in alive))
        return t

    write_tensors(tmp_path / "f", {str(i): Later((3, i + 1), torch.bfloat16, partial(make, i)) for i in range(5)},
                  {"layers": "1"})
    with safe_open(tmp_path / "f", "pt") as file:
        assert file.metadata() == {"layers": "1"} and len(list(file.keys())) == 5
        for i in range(5):
            later = read_later(file, str(i))
            assert (later.shape, later.dtype) == ((3, i + 1), torch.bfloat16)
            assert torch.equal(later.make(), torch.full((3, i + 1), i, dtype=torch.bfloat16))
    assert most == 1


def test_weights_are_freed_before_statistics_are_written(tmp_path, monkeypatch):
    alive, save = [], Parts.save
    load = Blocks._load

    def watched_load(self, *given):
        load(self, *given)
        alive.extend(weakref.ref(p) for p in self.model.parameters() if not p.is_meta)

    def watched_save(self, *given):
        assert alive and not any(p() is not None for p in alive)
        alive.clear()
        save(self, *given)

    monkeypatch.setattr(Blocks, "_load", watched_load)
    monkeypatch.setattr(Parts, "save", watched_save)
    model = write_model(tmp_path / "model", experts=True)
    calibrate(model, write_text_of_words(tmp_path / "text"), tmp_path / "out", keep_gram=True, **SIZES)


def test_what_makes_logits_is_not_read(tmp_path):
    blocks = Blocks(write_model(tmp_path / "model", experts=True), torch.float32, torch.device("cpu"))
    blocks.start(torch.zeros(1, 4, dtype=torch.int64).split(1))
    assert not any(not p.is_meta for p in blocks.model.parameters())
    blocks._load(None)
    assert not blocks.model.model.embed_tokens.weight.is_meta and blocks.model.lm_head.weight.is_meta


def test_a_dry_run_counts_one_expert(tmp_path):
    layers = []
    for experts in (4, 256):
        config = transformers.MixtralConfig(hidden_size=64, intermediate_size=128, num_hidden_layers=2, vocab_size=32,
                                            num_attention_heads=4, num_key_value_heads=2, num_local_experts=experts,
                                            architectures=["MixtralForCausalLM"])
        config.save_pretrained(tmp_path / f"{experts}")
        lines, estimate = [], Estimate(tmp_path / f"{experts}", 9, 32, 4, "float32", "cpu")
        layers.append(estimate.layers[0]["kept"] + estimate.layers[0]["matrix"])
        estimate.lines(lines.append, True, None, 4, 0)
        memory = next(line for line in lines if line.startswith("memory: "))
        assert f"a matrix and what stays of its layer {size(layers[-1] * 4)}, " in memory
    norms, gate_up = 2 * 64, 2 * 64 * 128
    assert layers == [norms + gate_up + experts * 64 for experts in (4, 256)], "with the router"


def test_a_dry_run_counts_what_factoring_takes():
    assert factor_bytes([8192, 8192, 28672]) == 12 * 28672**2 + 8 * 8192**2
    assert factor_bytes([8]) == 12 * 64


def memory_of_experts(folder, text, experts, one_pass):
    config = transformers.MixtralConfig(hidden_size=256, intermediate_size=512, num_hidden_layers=1, vocab_size=32,
                                        num_attention_heads=4, num_key_value_heads=2, num_local_experts=experts,
                                        num_experts_per_tok=2, max_position_embeddings=64)
    torch.manual_seed(3)
    transformers.MixtralForCausalLM(config).to(torch.bfloat16).save_pretrained(folder)
    tokenizer_of_words().save_pretrained(folder)
    given = f"quantize='{folder}.out', method='weighted'" if one_pass else "keep_gram=True"
    return most_memory(f"nvfp4.calibrate.calibrate('{folder}', '{text}', '{folder}.stats', {given}, windows=9, "
                       f"context=32, batch=4)")


@pytest.mark.slow
@needs_linux
@pytest.mark.parametrize("one_pass", [False, True])
def test_many_experts_take_no_more_memory_than_few(one_pass, tmp_path):
    text = write_text_of_words(tmp_path / "text")
    few, many = (memory_of_experts(tmp_path / f"{experts}", text, experts, one_pass) for experts in (4, 128))
    weights = 3 * 256 * 512 * 4  # of an expert
    assert many - few < 8 * weights, f"{few} and {many}: 124 experts more take {124 * weights}"


@needs_linux
def test_factoring_takes_twelve_bytes_an_element(tmp_path):
    depth, module, model = 3072, "model.layers.0.mlp.down_proj", tmp_path / "model"
    model.mkdir()
    (model / "config.json").write_text('{"architectures": ["LlamaForCausalLM"], "model_type": "llama"}')
    write_tensors(model / "model.safetensors", {f"{module}.weight": torch.ones(16, depth, dtype=torch.bfloat16)}, {})
    statistics = Statistics()
    statistics.add_empty(module, depth)
    statistics.tensors |= {f"{module}.count": torch.full((1,), 4.0 * depth, dtype=torch.float64),
                           f"{module}.diag": torch.ones(depth, dtype=torch.float64),
                           f"{module}.gram": torch.cat(list(collect.upper_triangle(torch.eye(depth))))}
    statistics.save(tmp_path / "statistics")
    most = most_memory(f"nvfp4.quantize_checkpoint('{model}', '{tmp_path}/out', method='gptq:0', "
                       f"statistics='{tmp_path}/statistics')")
    assert most < 13 * depth * depth
