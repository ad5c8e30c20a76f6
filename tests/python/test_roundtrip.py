"""Checkpoints that transformers wrote, quantized by the command and read back with the safetensors package."""

import json
import os
import subprocess

import pytest

np = pytest.importorskip("numpy")
torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers", minversion="5")
safe_open = pytest.importorskip("safetensors").safe_open

E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, 0, -0.5, -1, -1.5, -2, -3, -4, -6], np.float32)
SCALE_AMAX = 2688.0
LARGEST_ERROR = 0.12
PAIRS = [("q_proj", "k_proj"), ("q_proj", "v_proj"), ("gate_proj", "up_proj"), ("w1", "w3")]


def llama():
    config = transformers.LlamaConfig(
        hidden_size=128, intermediate_size=352, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, vocab_size=512, tie_word_embeddings=False)
    return transformers.LlamaForCausalLM(config)


def mixtral():
    config = transformers.MixtralConfig(
        hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, vocab_size=256, num_local_experts=4)
    return transformers.MixtralForCausalLM(config)


def qwen3_moe():
    config = transformers.Qwen3MoeConfig(
        hidden_size=64, intermediate_size=128, moe_intermediate_size=96, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, head_dim=16, vocab_size=256, num_experts=4,
        num_experts_per_tok=2)
    return transformers.Qwen3MoeForCausalLM(config)


def gpt_oss():
    config = transformers.GptOssConfig(
        hidden_size=64, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, head_dim=16, vocab_size=256, num_local_experts=4)
    return transformers.GptOssForCausalLM(config)


def load(folder):
    """name -> tensor of all shards; each must be where the index says."""
    tensors, owner = {}, {}
    for path in sorted(folder.glob("*.safetensors")):
        with safe_open(path, framework="pt") as file:
            for name in file.keys():
                tensors[name] = file.get_tensor(name)
                owner[name] = path.name
    index = folder / "model.safetensors.index.json"
    if index.exists():
        index = json.loads(index.read_text())
        assert index["weight_map"] == owner
        total = sum(t.numel() * t.element_size() for t in tensors.values())
        assert index["metadata"]["total_size"] == total, (index["metadata"], total)
    return tensors


def source_weight(source, module):
    """The [N, K] weight that `module` was made of, out of a 3-D tensor if need be."""
    if module + ".weight" in source:
        return source[module + ".weight"].float().numpy()
    experts, expert, part = module.rsplit(".", 2)
    if part == "down_proj":
        return source[experts + ".down_proj"][int(expert)].float().numpy().T
    first = ("gate_proj", "up_proj").index(part)
    return source[experts + ".gate_up_proj"][int(expert)].float().numpy()[:, first::2].T


def dequantize(codes, scales, multiplier):
    assert codes.dtype == torch.uint8, codes.dtype
    assert scales.dtype == torch.float8_e4m3fn, scales.dtype
    rows, half = codes.shape
    assert tuple(scales.shape) == (rows, half // 8), (codes.shape, scales.shape)
    bytes_ = codes.numpy()
    values = np.empty((rows, 2 * half), np.float32)
    values[:, 0::2] = E2M1[bytes_ & 15]
    values[:, 1::2] = E2M1[bytes_ >> 4]
    return values * np.repeat(scales.float().numpy(), 16, axis=1) * multiplier


def check_modelopt(source, out, module):
    scale, input_scale = out[module + ".weight_scale_2"], out[module + ".input_scale"]
    for scalar in (scale, input_scale):
        assert scalar.dtype == torch.float32 and tuple(scalar.shape) == (), module
    assert input_scale.item() == 1.0
    return dequantize(out[module + ".weight"], out[module + ".weight_scale"], scale.item())


def check_compressed_tensors(source, out, module):
    scale, input_scale = out[module + ".weight_global_scale"], out[module + ".input_global_scale"]
    for scalar in (scale, input_scale):
        assert scalar.dtype == torch.float32 and tuple(scalar.shape) == (1,), module
    assert input_scale.item() == 1.0
    return dequantize(out[module + ".weight_packed"], out[module + ".weight_scale"],
                      1 / scale.item())


FORMATS = {
    "modelopt": (check_modelopt, ".weight_scale_2"),
    "compressed-tensors": (check_compressed_tensors, ".weight_global_scale"),
}


def check_config(folder, before, quantized, format_name):
    config = json.loads((folder / "config.json").read_text())
    quantization = config.pop("quantization_config")
    assert config.pop("nvfp4_cpp")["version"]
    assert config == before, "config.json changed elsewhere"
    ignored = quantization["ignore"]
    assert "lm_head" in ignored
    assert not set(ignored) & quantized, set(ignored) & quantized
    if format_name == "modelopt":
        assert quantization["quant_algo"] == "NVFP4"
        side = json.loads((folder / "hf_quant_config.json").read_text())["quantization"]
        assert side["exclude_modules"] == ignored
        assert side["group_size"] == 16 and side["kv_cache_quant_algo"] is None
    else:
        assert quantization["format"] == "nvfp4-pack-quantized"
        assert quantization["config_groups"]["group_0"]["weights"]["num_bits"] == 4


def taken_apart(out):
    """With the experts of ModelOpt's stacks, [E, K, N] with gate and up in turn, one by one."""
    for name in [n for n in out if n.endswith("_proj_weight_scale_2")]:
        stack = name.removesuffix("_weight_scale_2")
        experts, last = stack.rsplit(".", 1)
        parts = ("gate_proj", "up_proj") if last == "gate_up_proj" else (last,)
        codes, scales = out.pop(stack), out.pop(stack + "_weight_scale")
        scalars = {"weight_scale_2": out.pop(name), "input_scale": out.pop(stack + "_input_scale")}
        for e in range(len(codes)):
            for first, part in enumerate(parts):
                each = scalars | {"weight": codes[e][:, first::len(parts)].T.contiguous(),
                                  "weight_scale": scales[e][:, first::len(parts)].T.contiguous()}
                out.update({f"{experts}.{e}.{part}.{kind}": t for kind, t in each.items()})
    return out


def check(command, folder, format_name, expected_linear):
    source = load(folder)
    before = json.loads((folder / "config.json").read_text())
    output = folder.with_name(f"{folder.name}-{format_name}")
    subprocess.run([command, "quantize", folder, output, "--format", format_name, "--quiet"],
                   check=True)
    out = taken_apart(load(output))
    decode, suffix = FORMATS[format_name]
    quantized = {name.removesuffix(suffix) for name in out if name.endswith(suffix)}
    assert len(quantized) == expected_linear, (len(quantized), expected_linear)
    for module in sorted(quantized):
        weight = source_weight(source, module)
        decoded = decode(source, out, module)
        assert decoded.shape == weight.shape, (module, decoded.shape, weight.shape)
        error = np.linalg.norm(decoded - weight) / np.linalg.norm(weight)
        assert error < LARGEST_ERROR, f"{module}: relative error {error}"
        for one, other in PAIRS:
            if module.endswith("." + one):
                partner = module.removesuffix(one) + other
                assert out[module + suffix] == out[partner + suffix], partner
    quantized_sources = 0
    for name, tensor in source.items():
        if name in out and out[name].dtype == tensor.dtype:
            assert torch.equal(out[name], tensor), name
        else:
            quantized_sources += 1
    assert quantized_sources > 0
    check_config(output, before, quantized, format_name)
    for name in ("generation_config.json",):
        assert (output / name).read_bytes() == (folder / name).read_bytes()


# model, quantized matrices, bytes of a shard
MODELS = {
    "llama": (llama, 2 * 7, "300KB"),
    "mixtral": (mixtral, 2 * (4 + 4 * 3), "150KB"),
    "qwen3_moe": (qwen3_moe, 2 * (4 + 4 * 3), "10GB"),
    "gpt_oss": (gpt_oss, 2 * (4 + 4 * 3), "200KB"),
}


@pytest.fixture(scope="module", params=MODELS)
def model(request, tmp_path_factory):
    """Returns the folder of a saved model and the number of its weights to quantize."""
    make, linear, shard = MODELS[request.param]
    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp("models") / request.param
    make().to(torch.bfloat16).save_pretrained(folder, max_shard_size=shard)
    return folder, linear


@pytest.mark.parametrize("format_name", FORMATS)
def test_quantized_checkpoint_holds_the_weights(model, format_name):
    folder, linear = model
    check(os.environ["NVFP4_COMMAND"], folder, format_name, linear)
