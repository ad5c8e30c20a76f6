"""What nvfp4.calibrate holds while a layer runs, and while its statistics are written."""

import weakref

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers", minversion="5")
pytest.importorskip("safetensors")

from calibrate_cases import SIZES, write_model, write_text_of_words
from nvfp4.calibrate import Statistics, calibrate, collect
from nvfp4.calibrate.blocks import Blocks
from nvfp4.calibrate.collect import Collector
from nvfp4.calibrate.parts import Parts

DEPTH, EXPERTS, BATCHES = 256, 12, 3


def held(collector):
    """Bytes of inputs and Gram matrices."""
    tensors = [*collector.grams.values(), *(x for kept in collector.inputs.values() for x in kept)]
    return sum(t.untyped_storage().nbytes() for t in tensors)


def shown(rows, dtype=torch.float32):
    """A collector of experts that saw `rows` tokens of each batch, and their inputs."""
    random, collector, inputs = torch.Generator().manual_seed(1), Collector(keep_gram=True), {}
    for _ in range(BATCHES):
        for expert in range(EXPERTS):
            x = torch.randn(rows, DEPTH, generator=random).to(dtype)
            inputs.setdefault(f"e{expert}", []).append(x.clone())
            collector.see([f"e{expert}"], x)
            x.zero_()  # as a model may do
        collector.forget_inputs()
    return collector, {name: torch.cat(parts).double() for name, parts in inputs.items()}


@pytest.mark.parametrize("rows, dtype", [(5, torch.float32), (5, torch.bfloat16), (80, torch.float32),
                                         (90, torch.float32), (300, torch.bfloat16)])
def test_inputs_of_few_tokens_are_kept_instead_of_a_gram_matrix(rows, dtype, tmp_path):
    collector, inputs = shown(rows, dtype)
    few = rows * BATCHES < DEPTH
    assert held(collector) == EXPERTS * DEPTH * (rows * BATCHES * dtype.itemsize if few else DEPTH * 4)
    statistics = Statistics()
    collector.move_to(statistics)
    statistics.save(tmp_path / "statistics")
    loaded = Statistics.load(tmp_path / "statistics")
    at = torch.triu_indices(DEPTH, DEPTH)
    for name, x in inputs.items():
        assert torch.allclose(loaded.tensors[f"{name}.gram"].double(), (x.T @ x)[*at], rtol=1e-4, atol=1e-4 * len(x))


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


def test_weights_of_a_layer_are_gone_before_its_statistics_are_written(tmp_path, monkeypatch):
    alive, save = [], Parts.save
    load = Blocks._load

    def watched_load(self, name):
        load(self, name)
        alive.extend(weakref.ref(p) for p in self.model.parameters() if not p.is_meta)

    def watched_save(self, *given):
        assert alive and not any(p() is not None for p in alive)
        alive.clear()
        save(self, *given)

    monkeypatch.setattr(Blocks, "_load", watched_load)
    monkeypatch.setattr(Parts, "save", watched_save)
    model = write_model(tmp_path / "model", experts=True)
    calibrate(model, write_text_of_words(tmp_path / "text"), tmp_path / "out", keep_gram=True, **SIZES)
