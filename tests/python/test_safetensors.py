"""Everything we write, opened by the safetensors package."""

import json
import math

import pytest

torch = pytest.importorskip("torch")
safetensors = pytest.importorskip("safetensors", reason="safetensors is not installed")

import nvfp4
from reference import E2M1

LARGEST_ERROR = 0.12  # of a Gaussian weight


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """The synthetic models have linear layers, experts, shards and an index."""
    folder = tmp_path_factory.mktemp("model") / "model"
    nvfp4.sample(folder, arch="deepseek-v3", layers=2, scale=1 / 64, shards=2)
    return folder


def contents(folder):
    """name -> tensor of every file, each where the index says, its shape as its header says."""
    tensors, owner = {}, {}
    files = sorted(folder.glob("*.safetensors"))
    assert files
    for path in files:
        with safetensors.safe_open(path, framework="pt") as file:
            for name in file.keys():
                tensors[name] = file.get_tensor(name)
                assert list(tensors[name].shape) == file.get_slice(name).get_shape()
                owner[name] = path.name
    index = folder / "model.safetensors.index.json"
    if index.exists():
        index = json.loads(index.read_text())
        assert index["weight_map"] == owner
        assert index["metadata"]["total_size"] == sum(
            t.numel() * t.element_size() for t in tensors.values())
    return tensors


def assert_same_bytes(a, b):
    assert a.keys() == b.keys()
    for name, tensor in a.items():
        assert tensor.dtype == b[name].dtype and tensor.shape == b[name].shape, name
        assert torch.equal(tensor.reshape(-1).view(torch.uint8),
                           b[name].reshape(-1).view(torch.uint8)), name


def decoded(codes, scales, multiplier):
    values = torch.from_numpy(E2M1)[torch.stack([codes & 15, codes >> 4], -1).flatten(-2).long()]
    return values * scales.float().repeat_interleave(16, -1) * multiplier


def close(source, name, value):
    weight = source[name].float()
    return (value - weight).norm() <= LARGEST_ERROR * weight.norm()


def test_modelopt_and_compressed_tensors(model, tmp_path):
    source = contents(model)
    nvfp4.quantize_checkpoint(model, tmp_path / "modelopt")
    nvfp4.convert(tmp_path / "modelopt", tmp_path / "ct", to="compressed-tensors")
    nvfp4.convert(tmp_path / "ct", tmp_path / "back", to="modelopt")
    there, back = contents(tmp_path / "modelopt"), contents(tmp_path / "back")
    ct = contents(tmp_path / "ct")
    modules = [name.removesuffix(".weight_scale_2") for name in there
               if name.endswith(".weight_scale_2")]
    assert len(modules) > 20
    for module in modules:
        value = decoded(there[module + ".weight"], there[module + ".weight_scale"],
                        there[module + ".weight_scale_2"])
        assert close(source, module + ".weight", value), module
        assert torch.equal(ct[module + ".weight_packed"], there[module + ".weight"])
        assert ct[module + ".weight_scale"].dtype == torch.float8_e4m3fn
        assert math.isclose(ct[module + ".weight_global_scale"] * there[module + ".weight_scale_2"],
                            1, rel_tol=2**-22)
    assert_same_bytes(there, back)


def test_plain_forms_agree_with_the_source(model, tmp_path):
    source = contents(model)
    nvfp4.quantize_checkpoint(model, tmp_path / "nvfp4")
    plain = {}
    for to, dtype in (("bf16", torch.bfloat16), ("fp16", torch.float16)):
        nvfp4.convert(tmp_path / "nvfp4", tmp_path / to, to=to)
        plain[to] = contents(tmp_path / to)
        assert plain[to].keys() == source.keys()
        for name, tensor in plain[to].items():
            assert close(source, name, tensor.float()), name
        assert plain[to]["model.layers.0.self_attn.o_proj.weight"].dtype == dtype
    for name, tensor in plain["bf16"].items():
        assert torch.allclose(tensor.float(), plain["fp16"][name].float(), rtol=2**-7, atol=1e-6)


def test_comfyui_and_repaired_folders(model, tmp_path):
    nvfp4.quantize_checkpoint(model, tmp_path / "nvfp4")
    nvfp4.convert(tmp_path / "nvfp4", tmp_path / "comfyui", to="comfyui")
    assert len(contents(tmp_path / "comfyui")) > 20
    good = contents(tmp_path / "nvfp4")
    for name in ("hf_quant_config.json", "config.json"):
        (tmp_path / "nvfp4" / name).unlink()
    (tmp_path / "nvfp4" / "config.json").write_bytes((model / "config.json").read_bytes())
    assert nvfp4.repair(tmp_path / "nvfp4", tmp_path / "repaired")["changes"]
    assert_same_bytes(good, contents(tmp_path / "repaired"))
