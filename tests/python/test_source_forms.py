"""NVFP4 of other programs: the values are those of the programs' own functions, which are installed below build/ if needed."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
safetensors = pytest.importorskip("safetensors.torch")

import nvfp4

N, K, EXPERTS = 128, 256, 2


def installed(*packages):
    """Puts a folder with these packages first on the path of imports. It is complete if it has their list."""
    folder = Path(__file__).parents[2] / "build" / packages[0].split("[")[0].split("=")[0]
    stamp = folder / "installed.txt"
    if not stamp.exists() or stamp.read_text().split() != list(packages):
        run = subprocess.run([sys.executable, "-m", "pip", "install", "-q", "--upgrade", "--target", folder, *packages],
                             capture_output=True, text=True, check=False)
        if run.returncode:
            pytest.skip(f"{packages[0]} cannot be installed: {run.stderr.strip()[-200:]}")
        stamp.write_text("\n".join(packages))
    sys.path.insert(0, str(folder))


def converted(folder, tensors, config, to="bf16", metadata=None, **options):
    """The tensors of a checkpoint after `nvfp4.convert`."""
    folder.mkdir()
    safetensors.save_file({name: t.contiguous() for name, t in tensors.items()}, folder / "model.safetensors",
                          {"format": "pt", **(metadata or {})})
    (folder / "config.json").write_text(json.dumps({"model_type": "llama", **config}))
    nvfp4.convert(folder, folder.with_suffix(".plain"), to=to, **options)
    return safetensors.load_file(folder.with_suffix(".plain") / "model.safetensors")


@pytest.mark.slow
def test_mlx_dequantizes_the_same_values(tmp_path):
    installed("mlx[cpu]")
    mx = pytest.importorskip("mlx.core")
    name, config = "model.layers.0.mlp.up_proj", {"group_size": 16, "bits": 4, "mode": "nvfp4"}
    weight = np.random.default_rng(1).normal(scale=0.02, size=(N, K)).astype(np.float32)
    codes, scales = mx.quantize(mx.array(weight), mode="nvfp4")
    theirs = torch.from_numpy(np.array(mx.dequantize(codes, scales, mode="nvfp4", dtype=mx.float32)))
    stored = {"weight": torch.from_numpy(np.array(codes)), "scales": torch.from_numpy(np.array(scales))}
    found = converted(tmp_path / "theirs", {f"{name}.{k}": t for k, t in stored.items()}, {"quantization": config})
    assert torch.equal(found[f"{name}.weight"], theirs.bfloat16())

    safetensors.save_file({f"{name}.weight": torch.from_numpy(weight).bfloat16()}, tmp_path / "model.safetensors")
    nvfp4.quantize_checkpoint(tmp_path / "model.safetensors", tmp_path / "ours", format="mlx")
    nvfp4.convert(tmp_path / "ours", tmp_path / "back", to="bf16")
    ours = mx.load(str(tmp_path / "ours" / "model.safetensors"))
    values = mx.dequantize(ours[f"{name}.weight"], ours[f"{name}.scales"], mode="nvfp4", dtype=mx.float32)
    values = torch.from_numpy(np.array(values))
    back = safetensors.load_file(tmp_path / "back" / "model.safetensors")
    assert torch.equal(back[f"{name}.weight"], values.bfloat16())
    error = lambda x: (x - torch.from_numpy(weight)).square().sum()
    assert error(values) < error(theirs)


def test_inkling_is_dequantized_as_in_transformers(tmp_path):
    loading = pytest.importorskip("transformers.core_model_loading")
    convert = getattr(loading, "Inkling2LoopDequantizeExperts", None)
    if convert is None:
        pytest.skip("this transformers has no Inkling 2 Loop")
    random = torch.Generator().manual_seed(1)
    name = "model.llm.layers.0.mlp.experts.w2_weight"
    parts = {"": torch.randint(0, 256, (EXPERTS, N, K // 2), generator=random, dtype=torch.uint8),
             "_scale": (torch.rand(EXPERTS, N, K // 16, generator=random) * 400).to(torch.float8_e4m3fn),
             "_amax": torch.rand(EXPERTS, generator=random) + 0.1,
             "_outer_scale_denominator": torch.tensor(2688.0)}
    patterns = [f"w2_weight{suffix}" for suffix in parts]
    theirs = dict(zip(patterns, parts.values()))
    theirs[patterns[3]] = theirs[patterns[3]].expand(EXPERTS)
    theirs = convert().convert(theirs, patterns, ["w"])["w"]
    found = converted(tmp_path / "model", {name + suffix: t for suffix, t in parts.items()}, {})
    assert theirs.dtype == torch.bfloat16 and torch.equal(found[name], theirs)


def test_first_inkling_is_dequantized(tmp_path):
    """Names: vLLM, models/inkling/nvidia/model.py and moe.py. The input scale of an expert is its amax / 2688."""
    random = torch.Generator().manual_seed(1)
    name = "model.llm.layers.0.mlp.experts.w13_weight"
    codes = torch.randint(0, 256, (EXPERTS, N, K // 2), generator=random, dtype=torch.uint8)
    scales = (torch.rand(EXPERTS, N, K // 16, generator=random) * 400).to(torch.float8_e4m3fn)
    factors, amax = (torch.rand(EXPERTS, generator=random) + 0.1 for _ in range(2))
    parts = {"": codes, ".scale": scales, ".scale2": factors, ".input_amax": amax,
             ".original_shape": torch.tensor([EXPERTS, N, K])}
    values = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6])
    nibbles = torch.stack([codes & 15, codes >> 4], -1).reshape(EXPERTS, N, K).long()
    expected = torch.where(nibbles > 7, -1, 1) * values[nibbles & 7] * scales.float().repeat_interleave(16, -1)
    expected = (expected * factors[:, None, None]).bfloat16()
    parts = {name + suffix: t for suffix, t in parts.items()}
    found = converted(tmp_path / "model", parts, {
        "model_type": "inkling_mm_model", "architectures": ["InklingForConditionalGeneration"],
        "quantization_config": {"quant_method": "modelopt", "quant_algo": "NVFP4"}})
    assert found.keys() == {name} and torch.equal(found[name], expected)
    tensor, = nvfp4.inspect(tmp_path / "model")["tensors"]
    assert tensor["input_scale"] == pytest.approx(float(amax.max()) / 2688)
    loaders = nvfp4.verify(tmp_path / "model")["loaders"]
    assert [name for name, loader in loaders.items() if loader["verdict"] != "refuses"] == ["vllm", "sglang"]


@pytest.mark.slow
@pytest.mark.parametrize("swizzled", (False, True))
@pytest.mark.parametrize("shape", ((N, K), (EXPERTS, N, K)))
def test_torchao_dequantizes_the_same_values(tmp_path, shape, swizzled):
    installed("torchao", "--no-deps")
    nvfp4_tensor = pytest.importorskip("torchao.prototype.mx_formats.nvfp4_tensor")
    support = pytest.importorskip("torchao.prototype.safetensors.safetensors_support")
    torch.manual_seed(1)
    scale = torch.full((EXPERTS, 1, 1), 2.0**-12) if len(shape) == 3 else torch.tensor(2.0**-12)
    weight = nvfp4_tensor.NVFP4Tensor.to_nvfp4(torch.randn(shape).bfloat16() / 16, per_tensor_scale=scale,
                                               is_swizzled_scales=swizzled)
    name = "model.layers.0.mlp.experts.down_proj" if len(shape) == 3 else "model.layers.0.mlp.down_proj.weight"
    tensors, metadata = support.flatten_tensor_state_dict({name: weight})
    found = converted(tmp_path / "model", tensors, {}, metadata=metadata)
    assert torch.equal(found[name], weight.dequantize(torch.bfloat16))
