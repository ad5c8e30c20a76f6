"""Reads the written GGUF files with llama.cpp's own package."""

import json
import shutil
import struct

import numpy as np
import pytest

import nvfp4
from reference import E4M3

gguf = pytest.importorskip("gguf", reason="the Python package gguf is missing")
if not hasattr(gguf.GGMLQuantizationType, "NVFP4"):
    pytest.skip("this version of gguf has no NVFP4", allow_module_level=True)


def tensors_of(folder):
    """Every tensor of a folder of BF16 and F32 tensors, by name, as float32."""
    out = {}
    for path in folder.glob("*.safetensors"):
        data = path.read_bytes()
        size = struct.unpack_from("<Q", data)[0]
        for name, info in json.loads(data[8:8 + size]).items():
            if name == "__metadata__":
                continue
            begin, end = (8 + size + at for at in info["data_offsets"])
            raw = np.frombuffer(data[begin:end], np.uint8)
            if info["dtype"] == "BF16":
                value = (raw.view(np.uint16).astype(np.uint32) << 16).view(np.float32)
            else:
                value = raw.view({"F32": np.float32, "U8": np.uint8, "F8_E4M3": np.uint8}[info["dtype"]])
            out[name] = value.reshape(info["shape"])
    return out


def to_bf16(x):
    """Nearest BF16, ties to even."""
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) & np.uint32(0xFFFF0000)).view(np.float32)


def assert_same(theirs, ours, name):
    """`ours` is BF16, or FP32 that was never rounded."""
    rounded = np.array_equal(to_bf16(ours), ours)
    np.testing.assert_array_equal(to_bf16(theirs) if rounded else theirs, ours, err_msg=name)


def interleaved(rows, heads):
    """Returns rows in the order of permute() in llama.cpp's conversion/llama.py."""
    return (rows.reshape(heads, 2, rows.shape[0] // heads // 2, *rows.shape[1:])
            .swapaxes(1, 2).reshape(rows.shape))


GRANITE = {"attention_multiplier": 0.015625, "embedding_multiplier": 12.0,
           "residual_multiplier": 0.22, "logits_scaling": 8.0}


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    nvfp4.sample(folder / "llama", layers=2, scale=1 / 16)
    nvfp4.quantize_checkpoint(folder / "llama", folder / "llama-nvfp4")
    nvfp4.sample(folder / "deepseek", arch="deepseek-v3", layers=2, scale=1 / 32)
    nvfp4.quantize_checkpoint(folder / "deepseek", folder / "deepseek-nvfp4",
                              ignore=["*.self_attn.*"])
    with pytest.raises(nvfp4.UnsupportedError, match="multi-token prediction.*--allow drop"):
        nvfp4.convert(folder / "deepseek-nvfp4", folder / "deepseek.gguf", to="gguf")
    shutil.copytree(folder / "llama-nvfp4", folder / "granite-nvfp4")
    config = json.loads((folder / "llama-nvfp4" / "config.json").read_text())
    config.update(GRANITE, model_type="granite", architectures=["GraniteForCausalLM"])
    del config["rope_scaling"]
    (folder / "granite-nvfp4" / "config.json").write_text(json.dumps(config))
    for name in ("llama", "granite", "deepseek"):
        nvfp4.convert(folder / f"{name}-nvfp4", folder / f"{name}.gguf", to="gguf",
                      allow=["drop"] if name == "deepseek" else ())
        nvfp4.convert(folder / f"{name}-nvfp4", folder / f"{name}-bf16", to="bf16")
    return folder


RECIPE = """
about: attention in FP8, an MLP in MXFP8, all else in NVFP4
rules:
  - kind: attention
    action: fp8_channel
  - match: model.layers.1.mlp.*
    action: mxfp8
"""


@pytest.fixture(scope="module")
def mixed(models):
    """A folder with NVFP4, FP8 and MXFP8, and the values of its weights in FP8, by NumPy."""
    (models / "mixed.yaml").write_text(RECIPE)
    folder = models / "mixed"
    nvfp4.quantize_checkpoint(models / "llama", folder, format="compressed-tensors",
                              recipe=models / "mixed.yaml")
    stored = tensors_of(folder)
    values = {}
    for name, codes in stored.items():
        scales = stored.get(name + "_scale")
        if not name.endswith("_proj.weight") or scales is None:
            continue
        codes, is_mx = codes.astype(np.uint8), scales.shape[1] > 1
        numbers = np.where(codes & 128, -1, 1) * E4M3[codes & 127]
        scales = 2.0 ** (scales.astype(np.float32) - 127) if is_mx else scales
        values[name] = (numbers * np.repeat(scales, codes.shape[1] // scales.shape[1], 1)).astype(np.float32)
    return folder, values


def file_name(model_name):
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, 2)
    return names.get_name(model_name, (".weight",))


@pytest.mark.parametrize("rest", ["bf16", "q8_0"])
def test_mixed_checkpoint_keeps_nvfp4(mixed, tmp_path, rest):
    folder, values = mixed
    config = json.loads((folder / "config.json").read_text())
    assert len(values) == 11  # 8 of attention, 3 of the MLP
    report = nvfp4.convert(folder, tmp_path / "m.gguf", rest=rest)
    name_of_rest = rest.upper()
    for form in (f"8 FP8 weights become {name_of_rest}, gguf cannot hold them: model.layers.0",
                 f"3 MXFP8 weights become {name_of_rest}, gguf cannot hold them: model.layers.1.mlp"):
        assert any(w.startswith(form) for w in report["warnings"]), report["warnings"]
    reader = gguf.GGUFReader(tmp_path / "m.gguf")
    tensors = {t.name: t for t in reader.tensors}
    kinds = [t.tensor_type.name for t in reader.tensors]
    assert kinds.count("NVFP4") == 3 and kinds.count(name_of_rest) == 11 + 2 * (rest == "bf16")
    lost = norm = 0
    for name, value in values.items():
        heads = {"q_proj": config["num_attention_heads"],
                 "k_proj": config["num_key_value_heads"]}.get(name.split(".")[-2])
        value = interleaved(value, heads) if heads else value
        theirs = gguf.quants.dequantize(tensors[file_name(name)].data, tensors[file_name(name)].tensor_type)
        if rest == "bf16":
            np.testing.assert_array_equal(theirs, to_bf16(value), err_msg=name)
            continue
        np.testing.assert_array_equal(
            tensors[file_name(name)].data,
            gguf.quants.quantize(value, gguf.GGMLQuantizationType.Q8_0), err_msg=name)
        lost += np.sum((theirs.astype(np.float64) - value) ** 2)
        norm += np.sum(value.astype(np.float64) ** 2)
    if rest == "q8_0":
        error = f"relative error of the weights that become Q8_0: {np.sqrt(lost / norm):.2g}"
        assert error in report["warnings"]
    # Back again: NVFP4 bit for bit, the rest as numbers.
    nvfp4.convert(tmp_path / "m.gguf", tmp_path / "back", to="compressed-tensors")
    before, after = tensors_of(folder), tensors_of(tmp_path / "back")
    nvfp4_parts = [n for n in before if "weight_packed" in n or "weight_global_scale" in n]
    assert len(nvfp4_parts) == 6
    for name in nvfp4_parts:
        np.testing.assert_array_equal(after[name], before[name], err_msg=name)
        scales = name.rsplit(".", 1)[0] + ".weight_scale"
        np.testing.assert_array_equal(after[scales], before[scales], err_msg=scales)
    for name, value in values.items():
        if rest == "bf16":
            np.testing.assert_array_equal(after[name], to_bf16(value), err_msg=name)
        else:
            np.testing.assert_allclose(after[name], value, atol=np.abs(value).max() / 250)


def test_rest_is_for_gguf_alone(mixed, tmp_path):
    with pytest.raises(nvfp4.InvalidValueError, match="rest = q8_0 is for GGUF, not for modelopt"):
        nvfp4.convert(mixed[0], tmp_path / "out", to="modelopt", rest="q8_0")


def dequantized(reader):
    """Every weight of the file by the package's own formula, times its global scale."""
    tensors = {t.name: t for t in reader.tensors}
    out = {}
    for name, t in tensors.items():
        if name.endswith((".scale", ".input_scale")):
            continue
        out[name] = gguf.quants.dequantize(t.data, t.tensor_type)
        scale = tensors.get(name.removesuffix(".weight") + ".scale")
        if t.tensor_type == gguf.GGMLQuantizationType.NVFP4:
            shape = (-1,) + (1,) * (out[name].ndim - 1) if out[name].ndim == 3 else (-1,)
            out[name] = out[name] * scale.data.reshape(shape)
    return out


@pytest.mark.parametrize("model", ["llama", "granite", "deepseek"])
def test_every_weight_is_that_of_the_checkpoint(models, model):
    arch = {"llama": gguf.MODEL_ARCH.LLAMA, "granite": gguf.MODEL_ARCH.GRANITE, "deepseek": gguf.MODEL_ARCH.DEEPSEEK2}[model]
    names = gguf.get_tensor_name_map(arch, 2)
    config = json.loads((models / f"{model}-nvfp4" / "config.json").read_text())
    theirs = dequantized(gguf.GGUFReader(models / f"{model}.gguf"))
    ours = tensors_of(models / f"{model}-bf16")
    seen, experts = set(), {}
    for name, value in ours.items():
        if name.startswith(f"model.layers.{config['num_hidden_layers']}."):
            continue  # multi-token prediction
        parts = name.split(".experts.")
        if len(parts) == 2:  # the map names the stack without a number
            number, rest = parts[1].split(".", 1)
            experts.setdefault(f"{parts[0]}.experts.{rest}", {})[int(number)] = value
            continue
        if name.endswith("kv_b_proj.weight"):  # heads of keys, transposed, and values
            heads = config["num_attention_heads"]
            parts = np.split(value.reshape(heads, -1, value.shape[1]), [config["qk_nope_head_dim"]], 1)
            for key, part in (("k_b", parts[0].swapaxes(1, 2)), ("v_b", parts[1])):
                seen.add(names.get_name(name.replace("kv_b", key), (".weight",)))
                assert_same(theirs[names.get_name(name.replace("kv_b", key), (".weight",))], part, name)
            continue
        key = name.replace("e_score_correction_bias", "e_score_correction.bias")
        mapped = names.get_name(key, (".weight", ".bias"))
        if model != "deepseek" and name.endswith("q_proj.weight"):
            value = interleaved(value, config["num_attention_heads"])
        if model != "deepseek" and name.endswith("k_proj.weight"):
            value = interleaved(value, config["num_key_value_heads"])
        assert_same(theirs[mapped], value, name)
        seen.add(mapped)
    for name, stack in experts.items():
        mapped = names.get_name(name, (".weight",))
        value = np.stack([stack[e] for e in range(len(stack))])
        assert_same(theirs[mapped], value, name)
        seen.add(mapped)
    assert bool(experts) == (model == "deepseek")
    assert set(theirs) - seen <= {"rope_freqs.weight"}


def test_factors_of_granite(models, tmp_path):
    """The keys that conversion/granite.py writes, there and back."""
    path = models / "granite.gguf"
    reader = gguf.GGUFReader(path)
    keys = gguf.Keys
    for member, key in (("attention_multiplier", keys.Attention.SCALE),
                        ("embedding_multiplier", keys.LLM.EMBEDDING_SCALE),
                        ("residual_multiplier", keys.LLM.RESIDUAL_SCALE),
                        ("logits_scaling", keys.LLM.LOGIT_SCALE)):
        assert reader.get_field(key.format(arch="granite")).contents() == np.float32(GRANITE[member])
    bare = tmp_path / "bare.gguf"  # as another program writes it, so that the keys are read
    bare.write_bytes(path.read_bytes().replace(b"nvfp4.config", b"other.config"))
    nvfp4.convert(bare, tmp_path / "back", to="modelopt")
    config = json.loads((tmp_path / "back" / "config.json").read_text())
    assert config["model_type"] == "granite" and {k: config[k] for k in GRANITE} == GRANITE


def test_types(models):
    """Types of tensors and of the file, by the package's own numbers."""
    reader = gguf.GGUFReader(models / "llama.gguf")
    kinds = {t.name: t.tensor_type.name for t in reader.tensors}
    assert kinds["blk.0.attn_q.weight"] == "NVFP4"
    assert kinds["blk.0.attn_q.scale"] == kinds["blk.0.attn_norm.weight"] == "F32"
    assert kinds["token_embd.weight"] == "BF16"
    assert reader.get_field("general.file_type").contents() == gguf.LlamaFileType.MOSTLY_NVFP4
    assert reader.get_field("general.architecture").contents() == "llama"
    assert reader.get_field("llama.block_count").contents() == 2


CARD = """---
license: other
license_name: llama3.1
license_link: LICENSE
base_model:
- meta-llama/Llama-3.1-8B
- https://huggingface.co/org/name-7B-v2
language: [en, de]
pipeline_tag: text-generation
tags: [one, two]
---
"""


@pytest.mark.parametrize("model, name", [
    ("llama", "Llama-3.1-8B-Instruct-NVFP4"), ("llama", "Tiny-{size}-chat-v1.2"), ("llama", "my model"),
    ("llama", "Mixtral-8x7B-v0.1"), ("llama", "bloom-7b1"), ("llama", "Phi-3-mini-128k-instruct"),
    ("llama", "granite-4.0-h-tiny"), ("llama", "v2"), ("deepseek", "model")])
def test_general_keys_are_those_of_the_package(models, tmp_path, model, name):
    """Name, size, license, base models, tags and sampling, by gguf's own Metadata."""
    count = sum(int(np.prod(t.shape)) for t in gguf.GGUFReader(models / f"{model}.gguf").tensors)
    folder = tmp_path / name.format(size=f"{round(count / 1e6)}M")
    shutil.copytree(models / f"{model}-nvfp4", folder)
    (folder / "README.md").write_text(CARD)
    (folder / "generation_config.json").write_text('{"top_k": 20, "top_p": 0.95, "temperature": 1}')
    nvfp4.convert(folder, tmp_path / "m.gguf", allow=["drop"])
    reader = gguf.GGUFReader(tmp_path / "m.gguf")
    total, shared, one, experts, stacks = 0, 0, 0, 0, 0
    for t in reader.tensors:
        size = int(np.prod(t.shape))
        total += size
        if "_exps." in t.name and len(t.shape) == 3:
            one, experts, stacks = one + size // int(t.shape[2]), experts + int(t.shape[2]), stacks + 1
        else:
            shared += size
    theirs = gguf.Metadata.load(None, folder, None, total)
    theirs.size_label = theirs.size_label or gguf.size_label(total, shared, one, experts // max(stacks, 1))
    writer = gguf.GGUFWriter(tmp_path / "unused", "llama")
    theirs.set_gguf_meta_model(writer)
    expected = {key: value.value for key, value in writer.kv_data[0].items()}
    del expected["general.architecture"]
    assert expected.keys() >= {"general.name", "general.size_label", "general.license",
                               "general.base_model.1.repo_url", "general.sampling.temp"}
    for key, value in expected.items():
        assert reader.get_field(key).contents() == pytest.approx(value), key


def test_llama3_rope_factors(models):
    """The formula of conversion/llama.py, generate_extra_tensors()."""
    config = json.loads((models / "llama-nvfp4" / "config.json").read_text())
    rope, dim = config["rope_scaling"], config["head_dim"]
    freqs = 1.0 / config["rope_theta"] ** (np.arange(0, dim, 2) / dim)
    low = rope["original_max_position_embeddings"] / rope["low_freq_factor"]
    high = rope["original_max_position_embeddings"] / rope["high_freq_factor"]
    expected = []
    for wavelength in 2 * np.pi / freqs:
        smooth = ((rope["original_max_position_embeddings"] / wavelength - rope["low_freq_factor"])
                  / (rope["high_freq_factor"] - rope["low_freq_factor"]))
        expected.append(1 if wavelength < high else rope["factor"] if wavelength > low
                        else 1 / ((1 - smooth) / rope["factor"] + smooth))
    reader = gguf.GGUFReader(models / "llama.gguf")
    factors = next(t for t in reader.tensors if t.name == "rope_freqs.weight")
    np.testing.assert_allclose(factors.data, expected, rtol=1e-6)
