"""nvfp4.engines.refit.quantize_weights(): new weights of a served model."""

import os
import sys
from pathlib import Path

import pytest

os.environ.setdefault("HF_HUB_OFFLINE", "1")
torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

import nvfp4
from nvfp4.engines.refit import quantize_weights

sys.path.append(str(Path(__file__).parent / "engines"))
from checkpoints import MODELS, make, tensors
from test_torch_quantize import different


def served_and_new(at, model, *what):
    """Returns the folder that is served, the new weights of its model, and the folder that they are quantized to."""
    served = make(at / "served", model, *what)
    torch.manual_seed(2)
    MODELS[model]().to(torch.bfloat16).save_pretrained(at / "new" / model)
    return served, tensors(at / "new" / model), make(at / "new", model, *what)


@pytest.fixture
def folders(tmp_path):
    for name in ("served", "new"):
        (tmp_path / name).mkdir()
    return tmp_path


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("what", [("w4a16", "modelopt"), ("w4a4", "modelopt"), ("w4a4", "compressed-tensors")])
def test_new_weights_have_the_bytes_of_quantize(folders, model, what):
    served, weights, expected = served_and_new(folders, model, *what)
    assert different(dict(quantize_weights(reversed(weights.items()), served)), tensors(expected)) == []
    assert "weight_scale" in str(different(tensors(served), tensors(expected)))


def test_wrong_weights_are_errors(folders):
    served, weights, _ = served_and_new(folders, "llama", "w4a16", "modelopt")
    name = "model.layers.0.self_attn.q_proj.weight"
    with pytest.raises(nvfp4.ShapeError, match=r"q_proj.weight: has shape \[64, 128\], must be \[128, 128\]"):
        list(quantize_weights([(name, weights[name][:64])], served))
    with pytest.raises(nvfp4.FormatError, match="q_proj did not come.*k_proj"):
        list(quantize_weights(((n, w) for n, w in weights.items() if n != name), served))
    with pytest.raises(nvfp4.FormatError, match="q_proj.weight came twice"):
        list(quantize_weights([*weights.items(), (name, weights[name])], served))
    with pytest.raises(nvfp4.FormatError, match="config.json cannot be read"):
        list(quantize_weights(weights.items(), folders))
    with pytest.raises(nvfp4.FormatError, match="no quantization_config"):
        list(quantize_weights(weights.items(), folders / "new" / "llama"))


def test_stacks_of_experts_are_errors(folders):
    served = make(folders / "served", "qwen3_moe", "w4a16", "modelopt")
    with pytest.raises(nvfp4.UnsupportedError, match="gate_up_proj: a stack of experts"):
        list(quantize_weights(MODELS["qwen3_moe"]().state_dict().items(), served))
