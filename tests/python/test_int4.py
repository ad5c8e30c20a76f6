"""INT4 and INT8 checkpoints: the values are those of compressed-tensors' own functions, and of AutoGPTQ's and AutoAWQ's formulas."""

import json

import numpy as np
import pytest

torch = pytest.importorskip("torch")
safetensors = pytest.importorskip("safetensors.torch")

import nvfp4

N, K = 48, 256
NAME = "model.layers.0.mlp.up_proj"


def decoded(folder, tensors, config, dtype="fp16"):
    """The weight of a checkpoint with these tensors after `nvfp4.convert`."""
    folder.mkdir()
    safetensors.save_file({f"{NAME}.{name}": t.contiguous() for name, t in tensors.items()},
                          folder / "model.safetensors", {"format": "pt"})
    (folder / "config.json").write_text(json.dumps({"model_type": "llama", "quantization_config": config}))
    nvfp4.convert(folder, folder.with_suffix(".plain"), to=dtype)
    return safetensors.load_file(folder.with_suffix(".plain") / "model.safetensors")[f"{NAME}.weight"]


@pytest.mark.parametrize("group", (32, 128, None))
@pytest.mark.parametrize("symmetric", (True, False))
@pytest.mark.parametrize("dtype", (torch.bfloat16, torch.float16))
def test_packed_integers_are_those_of_compressed_tensors(tmp_path, group, symmetric, dtype):
    base = pytest.importorskip("compressed_tensors.compressors.pack_quantized.base")
    from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme

    args = QuantizationArgs(num_bits=4, type="int", symmetric=symmetric, group_size=group,
                            strategy="group" if group else "channel")
    scheme = QuantizationScheme(targets=["Linear"], weights=args)
    torch.manual_seed(1)
    groups = K // group if group else 1
    state = {"weight": torch.randn(N, K, dtype=dtype),
             "weight_scale": (torch.rand(N, groups) / 4 + 0.05).to(dtype),
             "weight_zero_point": torch.randint(-8, 8, (N, groups), dtype=torch.int8)}
    if symmetric:
        state["weight_zero_point"].zero_()
    packed = base.PackedQuantizationCompressor.compress(state, scheme)
    expected = base.PackedQuantizationCompressor.decompress(packed, scheme)["weight"]
    weights = {k: v for k, v in args.model_dump().items() if k in ("num_bits", "type", "symmetric", "group_size")}
    config = {"quant_method": "compressed-tensors", "format": "pack-quantized",
              "config_groups": {"group_0": {"targets": ["Linear"], "weights": weights}}}
    found = decoded(tmp_path / "model", packed, config, "bf16" if dtype == torch.bfloat16 else "fp16")
    assert expected.dtype == dtype and torch.equal(found, expected)


def integers(groups):
    """Random codes [K, N], zero points and scales [groups, N]."""
    random = np.random.default_rng(1)
    return (random.integers(0, 16, (K, N)), random.integers(0, 16, (groups, N)),
            (random.random((groups, N)) / 16 + 1e-3).astype(np.float16))


def words(nibbles, axis):
    """Eight integers of 4 bits along an axis in each word, the first one lowest."""
    at = np.moveaxis(nibbles.astype(np.uint32), axis, -1)
    at = at.reshape(*at.shape[:-1], -1, 8)
    packed = np.bitwise_or.reduce(at << (4 * np.arange(8, dtype=np.uint32)), -1).astype(np.uint32)
    return torch.from_numpy(np.ascontiguousarray(np.moveaxis(packed, -1, axis)).view(np.int32))


@pytest.mark.parametrize("version", ("gptq", "gptq_v2"))
@pytest.mark.parametrize("act_order", (False, True))
def test_gptq_is_autogptqs_formula(tmp_path, version, act_order):
    """auto_gptq/nn_modules/qlinear/qlinear_cuda.py: scales[g_idx] * (q - ((zeros + 1) & 15)[g_idx]) in FP16."""
    q, zeros, scales = integers(K // 64)
    g_idx = np.arange(K, dtype=np.int32) // 64
    if act_order:
        np.random.default_rng(2).shuffle(g_idx)
    plus = (zeros + 1) & 15 if version == "gptq" else zeros
    expected = scales[g_idx] * (q - plus[g_idx]).astype(np.float16)
    tensors = {"qweight": words(q, 0), "qzeros": words(zeros, 1), "scales": torch.from_numpy(scales),
               "g_idx": torch.from_numpy(g_idx)}
    config = {"quant_method": "gptq", "bits": 4, "group_size": 64, "checkpoint_format": version}
    assert np.array_equal(decoded(tmp_path / "model", tensors, config).numpy(), expected.T)


def test_awq_is_autoawqs_formula(tmp_path):
    """awq/utils/packing_utils.py: columns in the order 0 2 4 6 1 3 5 7 in each word, (q - zeros) * scales in FP16."""
    q, zeros, scales = integers(K // 64)
    order = np.arange(N).reshape(-1, 8)[:, [0, 2, 4, 6, 1, 3, 5, 7]].reshape(-1)
    expected = (q - zeros.repeat(64, 0)).astype(np.float16) * scales.repeat(64, 0)
    tensors = {"qweight": words(q[:, order], 1), "qzeros": words(zeros[:, order], 1),
               "scales": torch.from_numpy(scales)}
    config = {"quant_method": "awq", "bits": 4, "group_size": 64, "zero_point": True, "version": "gemm"}
    assert np.array_equal(decoded(tmp_path / "model", tensors, config).numpy(), expected.T)


def int8(scales, dtype=torch.float32):
    """An INT8 weight with every code, as tensors."""
    codes = torch.arange(-128, 128, dtype=torch.int16).repeat(N, 1)
    return {"weight": codes.to(torch.int8), "weight_scale": scales.to(dtype)}


INT8 = {"quant_method": "compressed-tensors", "format": "int-quantized", "config_groups": {"group_0": {
    "targets": ["Linear"], "weights": {"num_bits": 8, "type": "int", "symmetric": True, "strategy": "channel"}}}}


@pytest.mark.parametrize("strategy, shape", (("channel", (N, 1)), ("channel", (N,)), ("tensor", (1,))))
@pytest.mark.parametrize("dtype", (torch.bfloat16, torch.float16))
def test_int8_is_that_of_compressed_tensors(tmp_path, strategy, shape, dtype):
    base = pytest.importorskip("compressed_tensors.compressors.naive_quantized.base")
    from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme

    torch.manual_seed(1)
    scheme = QuantizationScheme(targets=["Linear"], weights=QuantizationArgs(num_bits=8, type="int", strategy=strategy))
    state = int8(torch.rand(shape) / 64 + 1e-3, dtype)
    column = state["weight_scale"].reshape((-1, 1) if strategy == "channel" else (1,))
    expected = base.IntQuantizationCompressor.decompress({**state, "weight_scale": column}, scheme)["weight"]
    found = decoded(tmp_path / "model", state, INT8, "bf16" if dtype == torch.bfloat16 else "fp16")
    assert expected.dtype == dtype and torch.equal(found, expected)


@pytest.mark.parametrize("change, text", (
    ({"weight_zero_point": torch.ones(N, 1, dtype=torch.int8)}, "codes with zero points"),
    ({"weight_scale": torch.ones(N, 4)}, "must be one scale for .* or for each of its rows"),
    ({"weight_scale": torch.ones(N, 1, dtype=torch.uint8)}, "must be F32, BF16 or F16"),
    ({"comfy_quant": torch.zeros(8, dtype=torch.uint8)}, "I8 with scales")))
def test_int8_of_other_forms_is_refused(tmp_path, change, text):
    with pytest.raises((nvfp4.UnsupportedError, nvfp4.FormatError), match=text):
        decoded(tmp_path / "model", int8(torch.ones(N, 1)) | change, INT8)


def test_q8_0_holds_int8_with_fp16_scales_exactly(tmp_path):
    """A GGUF file of NVFP4 and INT8: the integers are copied, and the file's numbers are those of the checkpoint."""
    gguf = pytest.importorskip("gguf", reason="the Python package gguf is missing")
    nvfp4.sample(tmp_path / "llama", layers=1, scale=1 / 16)
    nvfp4.quantize_checkpoint(tmp_path / "llama", tmp_path / "model")
    file = tmp_path / "model" / "model.safetensors"
    tensors = safetensors.load_file(file)
    name = "model.layers.0.mlp.down_proj"
    rows, cols = tensors[f"{name}.weight"].shape[0], tensors[f"{name}.weight"].shape[1] * 2
    for part in ("weight_scale", "weight_scale_2", "input_scale"):
        tensors.pop(f"{name}.{part}", None)
    torch.manual_seed(1)
    codes = torch.randint(-100, 100, (rows, cols), dtype=torch.int8)
    scales = (torch.rand(rows, 1) / 64 + 1e-3).half()
    tensors |= {f"{name}.weight": codes, f"{name}.weight_scale": scales.float()}
    safetensors.save_file(tensors, file, {"format": "pt"})
    report = nvfp4.convert(tmp_path / "model", tmp_path / "m.gguf", to="gguf", rest="q8_0")
    assert any("1 INT8 weights become Q8_0" in w for w in report["warnings"]), report["warnings"]
    t = next(t for t in gguf.GGUFReader(tmp_path / "m.gguf").tensors if t.name == "blk.0.ffn_down.weight")
    assert t.tensor_type == gguf.GGMLQuantizationType.Q8_0
    expected = codes.numpy().astype(np.float32) * scales.float().numpy()
    np.testing.assert_array_equal(gguf.quants.dequantize(t.data, t.tensor_type), expected)
