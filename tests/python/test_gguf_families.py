"""GGUF files of tiny models of transformers: names by the package gguf, numbers by the formulas of llama.cpp's
conversion/, and the way back."""

import json
import re

import numpy as np
import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers", reason="transformers is not installed")
gguf = pytest.importorskip("gguf", reason="the Python package gguf is missing")
if not hasattr(gguf.MODEL_ARCH, "QWEN35"):
    pytest.skip("this version of gguf has no Qwen3.5", allow_module_level=True)

import nvfp4
from test_gguf import dequantized, interleaved, tensors_of, to_bf16

SIZES = dict(hidden_size=128, intermediate_size=192, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
             vocab_size=320, max_position_embeddings=512, tie_word_embeddings=False, pad_token_id=None,
             bos_token_id=1, eos_token_id=2)
HEADS = SIZES | dict(head_dim=32)
#: kv_b_proj is copied in two chunks
LATENT = dict(num_key_value_heads=4, kv_lora_rank=576, q_lora_rank=64, qk_nope_head_dim=64, qk_rope_head_dim=16,
              v_head_dim=64, n_routed_experts=4, n_shared_experts=1, num_experts_per_tok=2, moe_intermediate_size=64,
              first_k_dense_replace=1, routed_scaling_factor=1.5, index_n_heads=4, index_head_dim=64, index_topk=16,
              indexer_types=["full", "shared"])
EXPERTS = dict(num_experts=4, num_experts_per_tok=2, moe_intermediate_size=64)
LINEAR = SIZES | dict(head_dim=64, linear_conv_kernel_dim=4, linear_key_head_dim=64, linear_value_head_dim=64,
                      linear_num_key_heads=2, linear_num_value_heads=4, full_attention_interval=2,
                      layer_types=["linear_attention", "full_attention"])
LONG = {"rope_type": "longrope", "rope_theta": 10000.0, "original_max_position_embeddings": 128,
        "long_factor": [1 + i / 4 for i in range(16)], "short_factor": [1 + i / 8 for i in range(16)]}
ALPHA = {"rope_type": "dynamic", "rope_theta": 10000.0, "alpha": 50.0, "factor": 1.0}
LINEAR_KEYS = {"ssm.conv_kernel": 4, "ssm.state_size": 64, "ssm.group_count": 2, "ssm.time_step_rank": 4,
               "ssm.inner_size": 256, "full_attention_interval": 2, "attention.recurrent_layers": [True, False],
               "rope.dimension_count": 16}
SECTIONS = {"rope.dimension_sections": [11, 11, 10, 0]}
EXPERT_KEYS = {"expert_count": 4, "expert_used_count": 2, "expert_feed_forward_length": 64,
               "expert_shared_feed_forward_length": 64}
NEMOTRON = HEADS | dict(mamba_num_heads=4, mamba_head_dim=64, n_groups=2, ssm_state_size=16)
NEMOTRON_KEYS = {"ssm.conv_kernel": 4, "ssm.state_size": 16, "ssm.group_count": 2, "ssm.time_step_rank": 4,
                 "ssm.inner_size": 256, "context_length": 2**20, "rope.scaling.finetuned": False,
                 "attention.layer_norm_epsilon": 1e-5}
GEMMA4 = HEADS | dict(tie_word_embeddings=True, sliding_window=64, global_head_dim=64)
GEMMA4_KEYS = {"attention.key_length": 64, "attention.key_length_swa": 32, "rope.dimension_count": 64,
               "rope.dimension_count_swa": 32, "rope.freq_base": 1e6, "rope.freq_base_swa": 1e4,
               "attention.sliding_window": 64}
#: llama.cpp applies the scales of MLPs and experts
SCALED = {"gemma4_text", "gemma4_moe", "glm_moe_dsa", "nemotron_h", "nemotron_h_moe", "qwen3_5", "qwen3_5_moe", "qwen3_next"}

#: class without its ending, configuration, architecture, keys beside those of every model
FAMILIES = {
    "phi3": ("Phi3", SIZES | dict(original_max_position_embeddings=128, rope_parameters=LONG), "PHI3", {
        "rope.scaling.original_context_length": 128, "attention.sliding_window": 0, "rope.dimension_count": 32,
        "rope.scaling.attn_factor": np.sqrt(1 + np.log(4) / np.log(128))}),
    "gemma3_text": ("Gemma3", HEADS | dict(tie_word_embeddings=True, num_hidden_layers=6, sliding_window=64,
                                           query_pre_attn_scalar=32), "GEMMA3", {
        "attention.sliding_window": 64, "rope.freq_base": 1e6, "rope.freq_base_swa": 1e4, "attention.key_length": 32}),
    "gemma4_text": ("Gemma4", GEMMA4 | dict(num_hidden_layers=6, hidden_size_per_layer_input=64, use_double_wide_mlp=True,
                                            vocab_size_per_layer_input=320, num_kv_shared_layers=2,
                                            layer_types=["sliding_attention", "full_attention"] * 3), "GEMMA4",
                    GEMMA4_KEYS | {"attention.sliding_window_pattern": [True, False] * 3, "attention.shared_kv_layers": 2,
                                   "feed_forward_length": [192] * 4 + [384] * 2, "embedding_length_per_layer_input": 64}),
    "gemma4_moe": ("Gemma4", GEMMA4 | dict(hidden_size_per_layer_input=0, enable_moe_block=True, num_experts=4,
                                           top_k_experts=2, moe_intermediate_size=64, attention_k_eq_v=True,
                                           num_global_key_value_heads=1,
                                           layer_types=["sliding_attention", "full_attention"]), "GEMMA4",
                   GEMMA4_KEYS | {"attention.head_count_kv": [2, 1], "expert_count": 4, "expert_used_count": 2,
                                  "expert_feed_forward_length": 64, "embedding_length_per_layer_input": 0}),
    "glm4_moe": ("Glm4Moe", HEADS | dict(n_routed_experts=4, n_shared_experts=1, num_experts_per_tok=2,
                                         moe_intermediate_size=64, first_k_dense_replace=1, use_qk_norm=True,
                                         attention_bias=True, routed_scaling_factor=1.5), "GLM4_MOE", {
        "rope.dimension_count": 16, "leading_dense_block_count": 1, "expert_shared_count": 1, "expert_gating_func": 2,
        "expert_weights_scale": 1.5, "expert_weights_norm": True, "expert_feed_forward_length": 64,
        "expert_count": 4, "expert_used_count": 2}),
    "glm_moe_dsa": ("GlmMoeDsa", SIZES | LATENT, "GLM_DSA", {
        "attention.head_count_kv": 1, "attention.key_length": 592, "attention.value_length": 576,
        "attention.key_length_mla": 80, "attention.value_length_mla": 64, "rope.dimension_count": 16,
        "attention.kv_lora_rank": 576, "attention.q_lora_rank": 64, "attention.indexer.head_count": 4,
        "attention.indexer.key_length": 64, "attention.indexer.top_k": 16, "attention.indexer.types": [True, False],
        "expert_gating_func": 2, "leading_dense_block_count": 1, "expert_shared_count": 1, "expert_weights_scale": 1.5,
        "expert_feed_forward_length": 64, "expert_count": 4, "expert_used_count": 2}),
    "minimax_m2": ("MiniMaxM2", HEADS | dict(num_local_experts=4, num_experts_per_tok=2, rotary_dim=16), "MINIMAXM2", {
        "rope.dimension_count": 16, "expert_feed_forward_length": 192, "expert_gating_func": 2, "expert_count": 4}),
    "hunyuan_v1_dense": ("HunYuanDenseV1", HEADS | dict(rope_parameters=ALPHA), "HUNYUAN_DENSE", {
        "rope.freq_base": 1e4 * 50 ** (32 / 30), "rope.scaling.type": "none", "context_length": 262144,
        "rope.scaling.original_context_length": 262144}),
    "hunyuan_v1_moe": ("HunYuanMoEV1", HEADS | dict(num_experts=4, moe_topk=[2, 2]), "HUNYUAN_MOE", {
        "expert_used_count": 2, "expert_shared_count": 1, "expert_feed_forward_length": 192,
        "expert_shared_feed_forward_length": 192}),
    "gpt_oss": ("GptOss", HEADS | dict(num_local_experts=4, num_experts_per_tok=2, sliding_window=64), "GPT_OSS", {
        "attention.sliding_window": 64, "expert_feed_forward_length": 192, "expert_count": 4, "expert_used_count": 2,
        "rope.scaling.type": "yarn", "rope.scaling.factor": 32, "rope.scaling.original_context_length": 4096,
        "rope.scaling.yarn_beta_fast": 32, "rope.scaling.yarn_beta_slow": 1, "attention.key_length": 32}),
    "nemotron_h": ("NemotronH", NEMOTRON | dict(num_hidden_layers=3, layers_block_type=[
        "linear_attention", "full_attention", "mlp"]), "NEMOTRON_H", NEMOTRON_KEYS | {
        "attention.head_count_kv": [0, 2, 0], "feed_forward_length": [0, 0, 192]}),
    "nemotron_h_moe": ("NemotronH", NEMOTRON | dict(num_hidden_layers=3, layers_block_type=[
        "moe", "linear_attention", "full_attention"], n_routed_experts=4, num_experts_per_tok=2,
        moe_intermediate_size=64, moe_shared_expert_intermediate_size=128, moe_latent_size=64), "NEMOTRON_H_MOE",
        NEMOTRON_KEYS | EXPERT_KEYS | {
        "attention.head_count_kv": [0, 0, 2], "feed_forward_length": [64, 0, 0], "expert_shared_count": 1,
        "expert_shared_feed_forward_length": 128, "expert_weights_norm": True, "moe_latent_size": 64}),
    "qwen3_5": ("Qwen3_5", LINEAR, "QWEN35", LINEAR_KEYS | SECTIONS),
    "qwen3_5_moe": ("Qwen3_5Moe", LINEAR | EXPERTS | dict(shared_expert_intermediate_size=64), "QWEN35MOE",
                    LINEAR_KEYS | SECTIONS | EXPERT_KEYS),
    # in_proj_qkvz is copied in two chunks
    "qwen3_next": ("Qwen3Next", LINEAR | EXPERTS | dict(hidden_size=384, shared_expert_intermediate_size=64,
                                                        norm_topk_prob=True),
                   "QWEN3NEXT", LINEAR_KEYS | EXPERT_KEYS),
}


def make(name, folder):
    kind, arguments, _, _ = FAMILIES[name]
    config = next(getattr(transformers, kind + end) for end in ("TextConfig", "Config")
                  if hasattr(transformers, kind + end))
    torch.manual_seed(1)
    model = getattr(transformers, kind + "ForCausalLM")(config(**arguments))
    for key, tensor in list(model.named_parameters()) + list(model.named_buffers()):
        if tensor.ndim == 1 or key.endswith("bias"):  # ones and zeros would hide what is added, or lost
            torch.nn.init.normal_(tensor.data, std=0.5)
    model.to(torch.bfloat16).save_pretrained(folder)


@pytest.fixture(scope="module", params=FAMILIES)
def family(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp(request.param)
    make(request.param, folder / "model")
    nvfp4.quantize_checkpoint(folder / "model", folder / "nvfp4")
    nvfp4.convert(folder / "nvfp4", folder / "model.gguf")
    nvfp4.convert(folder / "nvfp4", folder / "plain", to="bf16")
    return request.param, folder


@pytest.mark.parametrize("length", (-1, 0, 1))
def test_phi3_needs_its_original_length(tmp_path, length):
    make("phi3", tmp_path / "model")
    file = tmp_path / "model/config.json"
    config = json.loads(file.read_text())
    config["rope_parameters"]["original_max_position_embeddings"] = length
    file.write_text(json.dumps(config))
    with pytest.raises(nvfp4.FormatError, match=f"original_max_position_embeddings = {length}, must be from 2"):
        nvfp4.quantize_checkpoint(tmp_path / "model", tmp_path / "x.gguf")


def tiled(x, axis=0, size=64):
    """Heads of values, grouped by key in the model, as _reorder_v_heads() of conversion/qwen.py has them."""
    x = np.moveaxis(x, axis, 0)
    return np.moveaxis(x.reshape(2, 2, size, *x.shape[1:]).swapaxes(0, 1).reshape(x.shape), 0, axis)


def in_file(name, value, shifted, tiles):
    """The tensors that modify_tensors() of conversion/ makes of one: names for the package's map, and numbers."""
    part = name.split(".experts.")[-1]
    if part in ("gate_up_proj", "down_proj", "gate_up_proj_bias", "down_proj_bias"):  # stacks
        alternate, kind = ".mlp." in name, ".bias" if part.endswith("_bias") else ".weight"  # gpt_oss, or Gemma 4
        value = value.swapaxes(1, 2) if alternate and kind == ".weight" else value
        name = name.removesuffix(part) + part.removesuffix("_bias") + kind
        if part.startswith("down"):
            return [(name, value)]
        parts = (value[:, ::2], value[:, 1::2]) if alternate else np.split(value, 2, 1)
        name = name if alternate else name.replace(".experts.", ".mlp.experts.")
        return [(name.replace("gate_up_proj", which), x) for which, x in zip(("gate_proj", "up_proj"), parts)]
    part = name.split("linear_attn.")[-1].split("mixer.")[-1]
    if name.endswith("norm.weight") and shifted and part != "norm.weight":
        value = value + np.float32(1)
    if part == "conv1d.weight":
        value = value.squeeze(1)
    if name.endswith("kv_b_proj.weight"):  # heads of 64 keys and 64 values
        keys, values = np.split(value.reshape(4, 128, -1), 2, 1)
        return [(name.replace("kv_b", "k_b"), keys.swapaxes(1, 2)), (name.replace("kv_b", "v_b"), values)]
    if part == "in_proj_qkvz.weight":  # groups of 64 queries, 64 keys, 128 values and 128 gates
        groups = value.reshape(2, 384, -1)
        q, k, v, z = (groups[:, begin:end].reshape(-1, value.shape[1])
                      for begin, end in ((0, 64), (64, 128), (128, 256), (256, 384)))
        return [(name.replace("qkvz", "qkv"), np.concatenate([q, k, v])), (name.replace("qkvz", "z"), z)]
    if not tiles:
        pass
    elif part in ("in_proj_qkv.weight", "conv1d.weight"):
        value = np.concatenate([value[:256], tiled(value[256:])])
    elif part == "in_proj_z.weight":
        value = tiled(value)
    elif part in ("in_proj_a.weight", "in_proj_b.weight", "A_log", "dt_bias"):
        value = tiled(value, size=1)
    elif part == "out_proj.weight":
        value = tiled(value, axis=1)
    if part == "A_log":
        value = -np.exp(value)
    if name.startswith("backbone."):  # Mamba
        value = value.reshape({"A_log": (-1, 1), "D": (-1, 1), "norm.weight": (2, -1)}.get(
            part if "mixer" in name else "", value.shape))
        name = name.replace("dt_bias", "dt.bias")
        if part in ("q_proj.weight", "k_proj.weight"):
            value = interleaved(value, 4 if part[0] == "q" else 2)
    name = name.replace("dt_bias", "dt_proj.bias").replace("e_score_correction_bias", "e_score_correction.bias")
    for own, mapped in ((".sinks", ".sinks.weight"), (".layer_scalar", ".layer_scalar.weight"),
                        ("router.scale", "router.proj.scale"), ("router.per_expert_scale", "experts.down_proj.scale")):
        if name.endswith(own):
            name = name.removesuffix(own) + mapped
    return [(name, value)]


def test_names_and_numbers_are_those_of_the_converter(family):
    name, folder = family
    config, architecture = FAMILIES[name][1], getattr(gguf.MODEL_ARCH, FAMILIES[name][2])
    names = gguf.get_tensor_name_map(architecture, config["num_hidden_layers"])
    expected, stacks = {}, {}
    shifted = name in ("gemma3_text", "qwen3_5", "qwen3_5_moe", "qwen3_next")
    for key, value in (t for item in tensors_of(folder / "plain").items()
                       for t in in_file(*item, shifted, tiles=name.startswith("qwen3_5"))):
        parts = key.split(".experts.")
        if len(parts) == 2 and parts[1][0].isdigit():
            number, rest = parts[1].split(".", 1)
            stacks.setdefault(f"{parts[0]}.experts.{rest}", {})[int(number)] = value
        else:
            # llama.cpp's converter leaves gates and ups of Gemma 4 in one tensor; its loader reads both forms
            own = re.sub(r"model\.layers\.(\d)\.mlp\.experts\.(gate|up)_proj", r"blk.\1.ffn_\2_exps", key)
            expected[names.get_name(key, (".weight", ".bias", ".scale")) or own] = value
    for key, stack in stacks.items():
        key = re.sub(r"layers\.(\d+)\.(mixer\.|)experts", r"layers.\1.mlp.experts", key.replace("backbone.", "model."))
        expected[names.get_name(key, (".weight",))] = np.stack([stack[e] for e in range(len(stack))])
    if name == "phi3":
        expected |= {f"rope_factors_{which}.weight": np.float32(LONG[f"{which}_factor"]) for which in ("long", "short")}
    if name.startswith("gemma4"):
        expected["rope_freqs.weight"] = np.float32([1] * 8 + [1e30] * 24)
    reader = gguf.GGUFReader(folder / "model.gguf")
    stored = {t.name: t.data for t in reader.tensors}
    for key in [key for key in expected if key.endswith(".scale")]:  # of Gemma 4's routers
        np.testing.assert_array_equal(stored[key], expected.pop(key), err_msg=key)
    found = dequantized(reader)
    assert found.keys() == expected.keys() and None not in found
    for key, value in expected.items():
        assert found[key].shape == value.shape, key
        if np.array_equal(to_bf16(value), value) and found[key].ndim > 1:
            np.testing.assert_array_equal(to_bf16(found[key]), value, err_msg=key)
        else:
            np.testing.assert_allclose(found[key], value, rtol=1e-6, err_msg=key)


def test_keys_are_those_of_the_converter(family):
    name, folder = family
    _, config, architecture, keys = FAMILIES[name]
    prefix = gguf.MODEL_ARCH_NAMES[getattr(gguf.MODEL_ARCH, architecture)]
    reader = gguf.GGUFReader(folder / "model.gguf")
    assert reader.get_field("general.architecture").contents() == prefix
    common = {"block_count": config["num_hidden_layers"], "embedding_length": config["hidden_size"], "context_length": 512,
              "attention.head_count": 4, "attention.head_count_kv": 2, "vocab_size": 320, "feed_forward_length": 192}
    expected = common | keys
    if name == "qwen3_5_moe":
        del expected["feed_forward_length"]
    for key, value in expected.items():
        found = reader.get_field(f"{prefix}.{key}").contents()
        assert found == (value if isinstance(value, (str, list)) else pytest.approx(value, rel=1e-6)), key


def test_only_scaled_modules_are_nvfp4(family):
    name, folder = family
    for t in gguf.GGUFReader(folder / "model.gguf").tensors:
        is_nvfp4 = t.tensor_type == gguf.GGMLQuantizationType.NVFP4
        assert not is_nvfp4 or ".ffn_" not in t.name or name in SCALED, t.name
        if ".ffn_down" in t.name and not t.name.endswith(("scale", "bias")):
            routers = name == "gemma4_moe" and "_exps" in t.name  # the file's scale is the router's
            assert is_nvfp4 == (name in SCALED and not routers), t.name


def test_the_way_back_restores_every_tensor(family):
    name, folder = family
    nvfp4.convert(folder / "model.gguf", folder / "back", to="modelopt")
    before, after = tensors_of(folder / "nvfp4"), tensors_of(folder / "back")
    plain = tensors_of(folder / "plain")
    for key, stack in list(plain.items()):  # of Gemma 4
        if key.endswith(".experts.down_proj"):
            plain |= {key.replace("down", f"{e}.down") + ".weight": stack[e] for e in range(4)}
    for key, value in after.items():
        if value.dtype == np.float32 and value.ndim and key in plain:
            np.testing.assert_array_equal(value, plain[key], err_msg=key)
        else:
            np.testing.assert_array_equal(value, before[key], err_msg=key)
    assert {key for key in before if key.endswith(".weight")} == {key for key in after if key.endswith(".weight")}
    assert any(key.endswith("weight_scale") for key in after)
    with pytest.raises(nvfp4.UnsupportedError, match=r"config.json of .* models is not made of keys; take the original"):
        bare = folder / "bare.gguf"  # as another program writes it
        bare.write_bytes((folder / "model.gguf").read_bytes().replace(b"nvfp4.config", b"other.config"))
        nvfp4.convert(bare, folder / "foreign", to="modelopt")


def test_the_rest_as_q8_0(family, tmp_path):
    """MLPs whose scales llama.cpp does not apply become Q8_0 with `rest`."""
    name, folder = family
    report = nvfp4.convert(folder / "nvfp4", tmp_path / "q8.gguf", rest="q8_0")
    kinds = {t.name: t.tensor_type.name for t in gguf.GGUFReader(tmp_path / "q8.gguf").tensors}
    down = {kind for key, kind in kinds.items() if ".ffn_down" in key and not key.endswith(("scale", "bias"))}
    assert down == {"NVFP4", "Q8_0"} if name == "gemma4_moe" else {"NVFP4" if name in SCALED else "Q8_0"}
    assert any("become Q8_0" in w for w in report["warnings"]) == ("Q8_0" in kinds.values())


E2M1 = np.float32([0, 0.5, 1, 1.5, 2, 3, 4, 6, 0, -0.5, -1, -1.5, -2, -3, -4, -6])


@pytest.mark.parametrize("command", (nvfp4.convert, nvfp4.quantize_checkpoint))
def test_experts_in_mxfp4_stay(tmp_path, command):
    """GPT-OSS as OpenAI publishes it: a nibble for each element, even ones first, and an exponent for each 32."""
    from safetensors.torch import load_file, save_file
    make("gpt_oss", tmp_path / "model")
    file, config, random = tmp_path / "model/model.safetensors", tmp_path / "model/config.json", np.random.default_rng(1)
    tensors, expected = load_file(file), {}
    for key, stack in list(tensors.items()):
        if not key.endswith(("experts.gate_up_proj", "experts.down_proj")):
            continue
        experts, cols, rows = tensors.pop(key).shape
        codes = random.integers(0, 256, (experts, rows, cols // 32, 16), np.uint8)
        exponents = random.integers(110, 130, (experts, rows, cols // 32), np.uint8)
        tensors |= {f"{key}_blocks": torch.from_numpy(codes), f"{key}_scales": torch.from_numpy(exponents)}
        values = E2M1[np.stack([codes & 15, codes >> 4], -1).reshape(experts, rows, -1, 32)]
        values = (values * np.exp2(exponents[..., None].astype(np.float32) - 127)).reshape(experts, rows, cols)
        layer = f"blk.{key.split('.')[2]}."
        expected |= ({f"{layer}ffn_down_exps.weight": values} if key.endswith("down_proj") else {
            f"{layer}ffn_gate_exps.weight": values[:, ::2], f"{layer}ffn_up_exps.weight": values[:, 1::2]})
    save_file(tensors, file, {"format": "pt"})
    config.write_text(json.dumps(json.loads(config.read_text()) | {"quantization_config": {"quant_method": "mxfp4"}}))
    report = command(tmp_path / "model", tmp_path / "model.gguf")
    assert any("MXFP4 weights stay as they are (llama.cpp applies no global scale to it)" in w for w in report["warnings"])
    found = {t.name: t for t in gguf.GGUFReader(tmp_path / "model.gguf").tensors}
    for key, value in expected.items():
        assert found[key].tensor_type == gguf.GGMLQuantizationType.MXFP4
        np.testing.assert_array_equal(gguf.quants.dequantize(found[key].data, found[key].tensor_type), value, err_msg=key)
    findings = nvfp4.verify(tmp_path / "model.gguf")["findings"]
    assert {finding["code"] for finding in findings} <= {"gguf-tokenizer", "input-scale-default"}, findings
    for source in ("model", "model.gguf"):
        nvfp4.convert(tmp_path / source, tmp_path / "plain" / source, to="bf16")
    before, after = (tensors_of(tmp_path / "plain" / source) for source in ("model", "model.gguf"))
    for key in (key for key in before if ".experts." in key):
        np.testing.assert_array_equal(after[key], before[key], err_msg=key)


VISION = dict(hidden_size=32, intermediate_size=32)
#: text, vision, other members of the configuration, architecture, start of the tower's names
TOWERS = {
    "Qwen3_5": (LINEAR, VISION | dict(depth=1, num_heads=2, out_hidden_size=128, patch_size=4), {}, "qwen35",
                "model.visual."),
    "Gemma3": (FAMILIES["gemma3_text"][1], VISION | dict(num_hidden_layers=1, num_attention_heads=2, image_size=28,
                                                         patch_size=14), dict(mm_tokens_per_image=4), "gemma3",
               ("vision_tower.", "multi_modal_projector.")),
    "Gemma4": (FAMILIES["gemma4_text"][1], VISION | dict(num_hidden_layers=1, num_attention_heads=2, head_dim=16,
                                                         num_key_value_heads=2), dict(audio_config=None), "gemma4",
               ("model.vision_tower.", "model.embed_vision.")),
}


@pytest.mark.parametrize("kind", TOWERS)
def test_towers_and_prediction_are_left_out(tmp_path, kind):
    """A model that also sees: the names of its language model, and what llama.cpp keeps in another file."""
    text, vision, others, architecture, tower = TOWERS[kind]
    config = getattr(transformers, f"{kind}Config")(text_config=text, vision_config=vision, **others)
    getattr(transformers, f"{kind}ForConditionalGeneration")(config).to(torch.bfloat16).save_pretrained(
        tmp_path / "model")
    nvfp4.quantize_checkpoint(tmp_path / "model", tmp_path / "nvfp4")
    with pytest.raises(nvfp4.UnsupportedError, match="towers for images and sound.*--allow drop"):
        nvfp4.convert(tmp_path / "nvfp4", tmp_path / "model.gguf")
    nvfp4.convert(tmp_path / "nvfp4", tmp_path / "model.gguf", allow=["drop"])
    reader = gguf.GGUFReader(tmp_path / "model.gguf")
    assert reader.get_field(f"{architecture}.block_count").contents() == text["num_hidden_layers"]
    nvfp4.convert(tmp_path / "model.gguf", tmp_path / "back", to="modelopt")
    before, after = tensors_of(tmp_path / "nvfp4"), tensors_of(tmp_path / "back")
    assert set(before) - set(after) >= {key for key in before if key.startswith(tower)}
    assert {key for key in before if key.endswith(".weight") and not key.startswith(tower)} == {
        key for key in after if key.endswith(".weight")}
    for key, value in after.items():
        if value.shape == before[key].shape:  # no MLP that became BF16
            np.testing.assert_array_equal(value, before[key], err_msg=key)


QWEN_PREDICTION = ({"model.layers.1.": "mtp.layers.0."}, {
    "mtp.fc": ((128, 256), "eh_proj"), "mtp.pre_fc_norm_embedding": ((128,), "enorm"),
    "mtp.pre_fc_norm_hidden": ((128,), "hnorm"), "mtp.norm": ((128,), "shared_head.norm")},
    {"attention.recurrent_layers": [True, False, False]})
#: MTP layers, which transformers leaves out: copies of layers, own weights with their names in the package's map, keys
PREDICTION = {
    "glm4_moe": ({"model.layers.1.": "model.layers.2."}, {f"model.layers.2.{key}": (shape, key) for key, shape in (
        ("eh_proj", (128, 256)), ("enorm", (128,)), ("hnorm", (128,)), ("embed_tokens", (320, 128)),
        ("shared_head.head", (320, 128)), ("shared_head.norm", (128,)))}, {}),
    "glm_moe_dsa": ({"model.layers.1.": "model.layers.2."}, {f"model.layers.2.{key}": (shape, key) for key, shape in (
        ("eh_proj", (128, 256)), ("enorm", (128,)), ("hnorm", (128,)), ("shared_head.norm", (128,)))}, {}),
    "qwen3_5": QWEN_PREDICTION,
    "qwen3_5_moe": QWEN_PREDICTION,
    "qwen3_next": ({"model.layers.1.": "mtp.layers.0."}, {
        key: (tuple(3 * n for n in shape), name) for key, (shape, name) in QWEN_PREDICTION[1].items()},
        QWEN_PREDICTION[2]),
    "nemotron_h_moe": ({"backbone.layers.2.": "mtp.layers.0.", "backbone.layers.0.": "mtp.layers.1."}, {
        "mtp.layers.0.eh_proj": ((128, 256), "eh_proj"), "mtp.layers.0.enorm": ((128,), "enorm"),
        "mtp.layers.0.hnorm": ((128,), "hnorm"), "mtp.layers.1.final_layernorm": ((128,), "shared_head.norm"),
        "mtp.layers.1.norm": ((128,), "post_attention_norm")},
        {"attention.head_count_kv": [0, 0, 2, 2], "feed_forward_length": [64, 0, 0, 64]}),
}


def add_prediction(name, folder):
    """Returns the model's tensors, to which it adds an MTP layer."""
    from safetensors.torch import load_file, save_file
    file, config = folder / "model.safetensors", folder / "config.json"
    tensors, (copies, own, _) = load_file(file), PREDICTION[name]
    for key, value in list(tensors.items()):
        for layer, copy in copies.items():
            if key.startswith(layer):
                tensors[key.replace(layer, copy)] = value + 1
    for key, (shape, _) in own.items():
        tensors[f"{key}.weight"] = torch.randn(shape).to(torch.bfloat16)
    save_file(tensors, file, {"format": "pt"})
    config.write_text(json.dumps(json.loads(config.read_text()) | {"num_nextn_predict_layers": 1}))
    return tensors


@pytest.mark.parametrize("name", PREDICTION)
def test_prediction_layers_follow_the_others(tmp_path, name):
    make(name, tmp_path / "model")
    tensors, (copies, own, keys) = add_prediction(name, tmp_path / "model"), PREDICTION[name]
    architecture, layers = getattr(gguf.MODEL_ARCH, FAMILIES[name][2]), FAMILIES[name][1]["num_hidden_layers"]
    nvfp4.quantize_checkpoint(tmp_path / "model", tmp_path / "nvfp4")
    nvfp4.convert(tmp_path / "nvfp4", tmp_path / "model.gguf")
    reader = gguf.GGUFReader(tmp_path / "model.gguf")
    for key, value in ({"block_count": layers + 1, "nextn_predict_layers": 1} | keys).items():
        assert reader.get_field(f"{gguf.MODEL_ARCH_NAMES[architecture]}.{key}").contents() == value, key
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.GLM4_MOE, layers + 1)  # gguf 0.19 has no others with such layers
    found = dequantized(reader)
    for key, (shape, mapped) in own.items():
        value = tensors[f"{key}.weight"].float().numpy()
        value = value + 1 if name.startswith("qwen") and len(shape) == 1 else value
        mapped = names.get_name(f"model.layers.{layers}.{mapped}") or f"blk.{layers}.{mapped}"
        np.testing.assert_array_equal(found[f"{mapped}.weight"], value, err_msg=key)
    nvfp4.convert(tmp_path / "model.gguf", tmp_path / "back", to="modelopt")
    before, after = tensors_of(tmp_path / "nvfp4"), tensors_of(tmp_path / "back")
    added = [key for key in before if key.startswith((*copies.values(), *own)) and ".weight_scale" not in key]
    assert len(added) > len(own)
    for key in added:
        np.testing.assert_array_equal(after[key], before[key], err_msg=key)
