"""FP8 of recipes: the codes and scales that PyTorch's own conversion gives for every finite BF16 value."""

import json
import re
from pathlib import Path

import pytest

import nvfp4

torch = pytest.importorskip("torch")
safetensors = pytest.importorskip("safetensors.torch")

LAYER = "model.layers.0."
TINY = torch.finfo(torch.float32).tiny  # the least scale


def every_bf16():
    """All of them that are finite, by magnitude: 255 rows of 256, and one of the rows again."""
    values = torch.arange(65536, dtype=torch.int32).to(torch.int16).view(torch.bfloat16)
    values = values[torch.isfinite(values.float())]
    rows = values[torch.argsort(values.float().abs(), stable=True)].reshape(255, 256)
    return torch.cat([rows, rows[100:101]])


def of_amax(amax):
    """Scales, and 1 for what is all zero."""
    return torch.where(amax == 0, torch.ones(()), torch.clamp(amax / 448, min=TINY))


def scales_of(x, action):
    """Returns the scales as stored, and one for each element."""
    if action == "fp8":
        scale = of_amax(x.abs().max())
        return scale, scale.reshape(1, 1)
    if action == "fp8_channel":
        scale = of_amax(x.abs().amax(1))
        return scale, scale.reshape(-1, 1)
    scale = of_amax(x.abs().reshape(x.shape[0] // 128, 128, x.shape[1] // 128, 128).amax((1, 3)))
    return scale, scale.repeat_interleave(128, 0).repeat_interleave(128, 1)


@pytest.mark.parametrize(("action", "format"), [
    ("fp8", "modelopt"), ("fp8_channel", "modelopt"), ("fp8", "compressed-tensors"),
    ("fp8_channel", "compressed-tensors"), ("fp8_block", "compressed-tensors")])
def test_fp8_has_the_bits_of_torch(tmp_path, action, format):
    weights = {"self_attn.o_proj": every_bf16(),
               "self_attn.q_proj": torch.randn(384, 256, generator=torch.Generator().manual_seed(1)).bfloat16(),
               "mlp.up_proj": torch.ones(64, 256, dtype=torch.bfloat16)}
    model, out, recipe = tmp_path / "model", tmp_path / "out", tmp_path / "recipe.yaml"
    model.mkdir()
    safetensors.save_file({f"{LAYER}{name}.weight": w for name, w in weights.items()},
                          model / "model.safetensors", metadata={"format": "pt"})
    (model / "config.json").write_text(json.dumps({"model_type": "llama", "hidden_size": 256}))
    recipe.write_text(f"rules:\n- {{kind: attention, action: {action}}}\n")
    report = nvfp4.quantize_checkpoint(model, out, recipe=recipe, format=format)
    assert [rule["caught"] for rule in report["rules"]] == [2]
    found = safetensors.load_file(out / "model.safetensors")
    for name in ("self_attn.o_proj", "self_attn.q_proj"):
        x = weights[name].float()
        stored, of_element = scales_of(x, action)
        assert torch.equal(found[f"{LAYER}{name}.weight_scale"].reshape(stored.shape), stored), name
        codes = (x / of_element).to(torch.float8_e4m3fn)
        assert torch.equal(found[f"{LAYER}{name}.weight"].view(torch.uint8), codes.view(torch.uint8)), name


@pytest.mark.parametrize("format", ["modelopt", "compressed-tensors"])
def test_mxfp8_has_the_bits_of_modelopt(tmp_path, format):
    mxfp8 = pytest.importorskip("modelopt.torch.quantization.qtensor.mxfp8_tensor",
                                reason="nvidia-modelopt is not installed", exc_type=ImportError).MXFP8QTensor
    model, out, recipe = tmp_path / "model", tmp_path / "out", tmp_path / "recipe.yaml"
    model.mkdir()
    weights = {"self_attn.o_proj": every_bf16(),
               "self_attn.q_proj": torch.randn(384, 256, generator=torch.Generator().manual_seed(1)).bfloat16(),
               "mlp.up_proj": torch.ones(64, 256, dtype=torch.bfloat16)}
    safetensors.save_file({f"{LAYER}{name}.weight": w for name, w in weights.items()},
                          model / "model.safetensors", metadata={"format": "pt"})
    (model / "config.json").write_text(json.dumps({"model_type": "llama", "hidden_size": 256}))
    recipe.write_text("rules:\n- {kind: attention, action: mxfp8}\n")
    nvfp4.quantize_checkpoint(model, out, recipe=recipe, format=format)
    found = safetensors.load_file(out / "model.safetensors")
    for name in ("self_attn.o_proj", "self_attn.q_proj"):
        exponents = mxfp8.get_weights_scaling_factor(weights[name])
        codes = mxfp8.quantize_with_scale(weights[name].float(), exponents)
        assert torch.equal(found[f"{LAYER}{name}.weight_scale"], exponents), name
        assert torch.equal(found[f"{LAYER}{name}.weight"].view(torch.uint8), codes.view(torch.uint8)), name
    if format == "compressed-tensors":
        decompress = pytest.importorskip("compressed_tensors.compressors.mx_utils").decompress_mx_scale
        scales = decompress(found[f"{LAYER}self_attn.q_proj.weight_scale"]).float()
        codes = found[f"{LAYER}self_attn.q_proj.weight"].float()
        theirs = codes * scales.repeat_interleave(32, 1)
        nvfp4.convert(out, tmp_path / "plain", to="bf16", allow=["broken-scales"])  # no model has weights of 3e38
        ours = safetensors.load_file(tmp_path / "plain" / "model.safetensors")[f"{LAYER}self_attn.q_proj.weight"]
        assert torch.equal(theirs.bfloat16(), ours)


@pytest.mark.parametrize("arch", ["llama", "deepseek-v3"])
def test_the_example_of_the_page(tmp_path, arch):
    page = (Path(__file__).parents[2] / "docs/recipes.md").read_text(encoding="utf-8")
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(re.search(r"```yaml\n(.*?)```", page, re.DOTALL)[1])
    nvfp4.sample(tmp_path / "model", arch=arch, layers=2, scale=1 / 32)
    report = nvfp4.quantize_checkpoint(tmp_path / "model", tmp_path / "out", recipe=recipe, dry_run=True)
    assert all(rule["caught"] and rule["decided"] for rule in report["rules"]), report["rules"]
