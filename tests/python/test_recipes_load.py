"""Loads outputs of recipes in compressed-tensors' format with transformers."""

import pytest

import nvfp4
from test_transformers import FAMILIES, load, logits, plain_parameters, quantized_linears

torch = pytest.importorskip("torch")
safetensors = pytest.importorskip("safetensors.torch")

pytestmark = pytest.mark.usefixtures("without_our_backend")

#: W4A16 beside W4A4
BOTH = "rules:\n- {kind: attention, action: w4a16}\n"

#: recipe or its text -> linear layers that are quantized, of two layers of seven
QUANTIZED = {"all": 14, "mlp": 6, "nvidia": 14, "w4a16": 14, BOTH: 14}


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """And statistics as calibration writes them, which has a backend of its own for transformers."""
    folder = tmp_path_factory.mktemp("llama")
    torch.manual_seed(1)
    model = FAMILIES["llama"]().to(torch.bfloat16)
    model.save_pretrained(folder / "source")
    seen = {}
    for name, module in model.named_modules():
        if isinstance(module, torch.nn.Linear):
            seen |= {f"{name}.diag": torch.ones(module.in_features), f"{name}.count": torch.ones(1),
                     f"{name}.amax": torch.full((1,), 4.0)}
        if name.endswith("self_attn"):
            seen |= {f"{name}.{kind}_cache.amax": torch.full((1,), 7.0) for kind in "kv"}
    safetensors.save_file(seen, folder / "stats", metadata={"nvfp4_statistics": "1"})
    return folder / "source"


@pytest.mark.parametrize("recipe", QUANTIZED)
def test_weights_are_those_of_our_own_dequantized_model(source, tmp_path, recipe):
    """One rounding to BF16 each, of numbers that differ in FP32 by how they are multiplied."""
    (tmp_path / "both.yaml").write_text(BOTH)
    report = nvfp4.quantize_checkpoint(source, tmp_path / "out", format="compressed-tensors",
                                       recipe=tmp_path / "both.yaml" if recipe == BOTH else recipe,
                                       statistics=source.parent / "stats" if recipe == "nvidia" else None)
    assert sum(t["action"] != "kept" for t in report["tensors"]) == QUANTIZED[recipe]
    verdict = nvfp4.verify(tmp_path / "out", source=source)
    assert not verdict["broken"], verdict
    nvfp4.convert(tmp_path / "out", tmp_path / "plain", to="bf16")
    theirs = load(tmp_path / "out")
    linears = [m for m in quantized_linears(theirs).values() if isinstance(m, torch.nn.Linear)]
    assert len(linears) == QUANTIZED[recipe]
    expected = safetensors.load_file(tmp_path / "plain" / "model.safetensors")
    assert len(plain_parameters(theirs)) == 3 + 2 * 9
    if recipe == BOTH:
        with_inputs = [name for name, m in quantized_linears(theirs).items()
                       if m.quantization_scheme.input_activations is not None]
        assert len(with_inputs) == 6 and all(".mlp." in name for name in with_inputs)
    for key, p in plain_parameters(theirs).items():
        distance = (p.double() - expected[key].double()).abs()
        assert (distance <= 2.1 * 2.0**-8 * expected[key].double().abs()).all(), key
    assert logits(theirs).isfinite().all()
