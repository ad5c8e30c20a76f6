"""Everything we write, opened by the safetensors package."""

import json
import math

import pytest

torch = pytest.importorskip("torch")
safetensors = pytest.importorskip("safetensors", reason="safetensors is not installed")

import nvfp4
from reference import E2M1

LARGEST_ERROR = 0.12  # of a Gaussian weight
FUSED = [("q_proj", "k_proj"), ("q_proj", "v_proj"), ("gate_proj", "up_proj"), ("w1", "w3")]
FORMATS = {"modelopt": (".weight", ".weight_scale_2", ".input_scale", ()),
           "compressed-tensors": (".weight_packed", ".weight_global_scale", ".input_global_scale", (1,))}

TINY = dict(hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
            vocab_size=256)
#: Models that transformers writes: arguments beside TINY, matrices to quantize, size of a shard.
SAVED = {"Llama": (dict(hidden_size=128, intermediate_size=352, tie_word_embeddings=False), 2 * 7, "300KB"),
         "Mixtral": (dict(num_local_experts=4), 2 * (4 + 4 * 3), "150KB"),
         "Qwen3Moe": (dict(moe_intermediate_size=96, head_dim=16, num_experts=4, num_experts_per_tok=2), 2 * (4 + 4 * 3), "10GB"),
         "GptOss": (dict(intermediate_size=64, head_dim=16, num_local_experts=4), 2 * (4 + 4 * 3), "200KB")}


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """The synthetic models have linear layers, experts, shards and an index."""
    folder = tmp_path_factory.mktemp("model") / "model"
    nvfp4.sample(folder, arch="deepseek-v3", layers=2, scale=1 / 64, shards=2)
    return folder


@pytest.fixture(scope="module", params=SAVED)
def saved(request, tmp_path_factory):
    """Returns the folder of a model of transformers, and how many of its matrices are quantized."""
    transformers = pytest.importorskip("transformers", minversion="5")
    arguments, count, shard = SAVED[request.param]
    torch.manual_seed(0)
    config = getattr(transformers, f"{request.param}Config")(**TINY | arguments)
    folder = tmp_path_factory.mktemp("saved") / request.param
    getattr(transformers, f"{request.param}ForCausalLM")(config).to(torch.bfloat16).save_pretrained(folder, max_shard_size=shard)
    return folder, count


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
    assert codes.dtype == torch.uint8 and scales.dtype == torch.float8_e4m3fn
    values = torch.from_numpy(E2M1)[torch.stack([codes & 15, codes >> 4], -1).flatten(-2).long()]
    return values * scales.float().repeat_interleave(16, -1) * multiplier


def is_close(weight, value):
    return value.shape == weight.shape and (value - weight.float()).norm() <= LARGEST_ERROR * weight.float().norm()


def one_by_one(tensors):
    """Takes the stacks of four experts [4, K, N], whose gate and up take turns, apart."""
    out = {}
    for name, whole in tensors.items():
        stack, _, part = name.partition("_proj")
        if not stack.endswith((".experts.gate_up", ".experts.down")) or part == "_bias":
            out[name] = whole
            continue
        experts, _, last = stack.rpartition(".")
        parts = last.split("_")
        for e in range(4):
            for first, one in enumerate(parts):
                value = whole[e][:, first::len(parts)].T if whole.dim() else whole
                out[f"{experts}.{e}.{one}_proj.{part[1:] or 'weight'}"] = value
    return out


@pytest.mark.parametrize("format", FORMATS)
def test_checkpoints_of_transformers_keep_all_else(saved, tmp_path, format):
    folder, count = saved
    nvfp4.quantize_checkpoint(folder, tmp_path / "out", format=format)
    codes, scale, input_scale, shape = FORMATS[format]
    source, out = one_by_one(contents(folder)), one_by_one(contents(tmp_path / "out"))
    modules = {name.removesuffix(scale) for name in out if name.endswith(scale)}
    assert len(modules) == count
    for module in modules:
        for scalar in (out[module + scale], out[module + input_scale]):
            assert scalar.dtype == torch.float32 and tuple(scalar.shape) == shape, module
        assert out[module + input_scale].item() == 1
        multiplier = out[module + scale].item() if format == "modelopt" else 1 / out[module + scale].item()
        value = decoded(out[module + codes], out[module + ".weight_scale"], multiplier)
        assert is_close(source[module + ".weight"], value), module
        for one, other in FUSED:
            if module.endswith("." + one):
                assert out[module + scale] == out[module.removesuffix(one) + other + scale], module
    plain = source.keys() - {module + ".weight" for module in modules}
    assert plain and all(torch.equal(out[name], source[name]) for name in plain)
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    quantization = config.pop("quantization_config")
    assert config.pop("nvfp4_cpp")["version"] and config == json.loads((folder / "config.json").read_text())
    assert "lm_head" in quantization["ignore"] and not set(quantization["ignore"]) & modules
    if format == "modelopt":
        side = json.loads((tmp_path / "out" / "hf_quant_config.json").read_text())["quantization"]
        assert side["exclude_modules"] == quantization["ignore"] and quantization["quant_algo"] == "NVFP4"
        assert side["group_size"] == 16 and side["kv_cache_quant_algo"] is None
    else:
        assert quantization["format"] == "nvfp4-pack-quantized"
        assert quantization["config_groups"]["group_0"]["weights"]["num_bits"] == 4
    name = "generation_config.json"
    assert (tmp_path / "out" / name).read_bytes() == (folder / name).read_bytes()


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
        assert is_close(source[module + ".weight"], value), module
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
            assert is_close(source[name], tensor.float()), name
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
