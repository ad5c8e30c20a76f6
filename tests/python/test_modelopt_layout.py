"""Compares exports of nvidia-modelopt with those of recipes, on tiny random models: names, dtypes and shapes of the
tensors, and the configuration."""

import copy
import fnmatch
import json
import os
import warnings

import pytest

os.environ.setdefault("HF_HUB_OFFLINE", "1")
torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    mtq = pytest.importorskip("modelopt.torch.quantization", reason="nvidia-modelopt is not installed",
                              exc_type=ImportError)
    export = pytest.importorskip("modelopt.torch.export", reason="nvidia-modelopt is not installed",
                                 exc_type=ImportError)
from safetensors import safe_open

import nvfp4
from calibrate_cases import tokenizer_of_words, write_text_of_words
from nvfp4.calibrate import calibrate

TOKENS = torch.arange(3, 35).reshape(2, 16) % 32
SIZES = dict(vocab_size=256, hidden_size=64, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
             head_dim=16, intermediate_size=128, max_position_embeddings=64, tie_word_embeddings=False)
SPECIAL = dict(pad_token_id=0, bos_token_id=1, eos_token_id=2)
EXPERTS = dict(num_local_experts=4, num_experts_per_tok=4)
MODELS = {
    "llama": lambda: transformers.LlamaForCausalLM(transformers.LlamaConfig(**SIZES)),
    "qwen3_moe": lambda: transformers.Qwen3MoeForCausalLM(transformers.Qwen3MoeConfig(
        **SIZES, num_experts=4, num_experts_per_tok=4, moe_intermediate_size=96, decoder_sparse_step=1,
        mlp_only_layers=[])),
    "gpt_oss": lambda: transformers.GptOssForCausalLM(transformers.GptOssConfig(**SIZES, **SPECIAL, **EXPERTS)),
    "llama4": lambda: transformers.Llama4ForCausalLM(transformers.Llama4TextConfig(
        **SIZES, **SPECIAL, **EXPERTS, intermediate_size_mlp=128)),
    "deepseek_v3": lambda: transformers.DeepseekV3ForCausalLM(transformers.DeepseekV3Config(
        **SIZES | dict(num_key_value_heads=4), moe_intermediate_size=96, n_routed_experts=4, num_experts_per_tok=4,
        n_group=1, topk_group=1, first_k_dense_replace=1, q_lora_rank=32, kv_lora_rank=32, qk_rope_head_dim=16,
        qk_nope_head_dim=16, v_head_dim=16)),
}
#: What a model has no use for, and why. Of others, all recipes.
LEFT_OUT = {
    ("llama", "experts"): "a Llama has no experts",
    ("deepseek_v3", "all"): "kv_b_proj stays, which loaders take apart",
    ("deepseek_v3", "w4a16"): "kv_b_proj stays, which loaders take apart",
    ("deepseek_v3", "nvidia"): "kv_b_proj stays, which loaders take apart; the cache is latent",
}


def mlps():
    """MLPs and experts in NVFP4; theirs leaves out Llama 4's shared experts, which have another name."""
    config = copy.deepcopy(mtq.NVFP4_MLP_ONLY_CFG)
    four = next(entry["cfg"] for entry in mtq.NVFP4_DEFAULT_CFG["quant_cfg"]
                if entry["quantizer_name"] == "*weight_quantizer")
    config["quant_cfg"] += [{"quantizer_name": f"*feed_forward.shared_expert.*.{which}_quantizer", "cfg": four}
                            for which in ("weight", "input")]
    return config


def attention_in_fp8():
    """Adds attention in FP8, with keys and values cached in FP8."""
    config = mlps()
    eight = next(entry["cfg"] for entry in mtq.FP8_DEFAULT_CFG["quant_cfg"]
                 if entry["quantizer_name"] == "*weight_quantizer")
    config["quant_cfg"] += [{"quantizer_name": f"*self_attn*_proj.{which}_quantizer", "cfg": eight}
                            for which in ("weight", "input")]
    config["quant_cfg"] += copy.deepcopy(mtq.FP8_KV_CFG["quant_cfg"])
    return config


def attention_in_fp8_with_a_cast_cache():
    """Follows NVIDIA's recipes *-kv_fp8_cast: the cache is declared, and its scales are 1."""
    config = attention_in_fp8()
    config["quant_cfg"][-1]["cfg"]["use_constant_amax"] = True
    return config


#: Our recipe -> their configuration.
RECIPES = {
    "all": lambda: mtq.NVFP4_DEFAULT_CFG,
    "mlp": mlps,
    "experts": lambda: mtq.NVFP4_EXPERTS_ONLY_CFG,
    "nvidia": attention_in_fp8,
    "w4a16": lambda: mtq.W4A16_NVFP4_CFG,
}


@pytest.fixture(scope="module", params=MODELS)
def source(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp(f"{request.param}-", numbered=True)
    torch.manual_seed(3)
    model = MODELS[request.param]().to(torch.bfloat16)
    for module in model.modules():
        if getattr(module, "e_score_correction_bias", None) is not None:  # FP32, as DeepSeek publishes it
            module.e_score_correction_bias.data = module.e_score_correction_bias.data.float()
    model.save_pretrained(folder / "model")
    tokenizer_of_words().save_pretrained(folder / "model")
    write_text_of_words(folder / "text.txt")
    calibrate(folder / "model", folder / "text.txt", folder / "stats", windows=2, context=16, batch=2)
    return folder


def theirs(source, config, out):
    model = transformers.AutoModelForCausalLM.from_pretrained(source / "model", dtype=torch.bfloat16).eval()
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        model = mtq.quantize(model, copy.deepcopy(config), lambda m: m(TOKENS))
        export.export_hf_checkpoint(model, dtype=torch.bfloat16, export_dir=str(out))
    return out


def layout(folder):
    """name -> dtype and shape"""
    found = {}
    for file in folder.glob("*.safetensors"):
        with safe_open(file, "pt") as tensors:
            for name in tensors.keys():
                part = tensors.get_slice(name)
                found[name] = part.get_dtype(), part.get_shape()
    return found


def linear_modules(source):
    """Returns the linear modules of the model in transformers, with single or stacked experts."""
    return {name.removesuffix(".weight") for name, (_, shape) in layout(source / "model").items()
            if (name.endswith(".weight") and len(shape) == 2 or len(shape) == 3) and "embed" not in name}


def spelled_out(names, modules):
    """With the modules that the name of a list of experts stands for, in its place."""
    below = {name: [m for m in modules if m.startswith(name + ".")] for name in names}
    return sorted(m for name in names for m in ([name] if name in modules else below[name]))


def normal(config, modules):
    """A configuration with what its lists say of the modules, in place of the lists."""
    config = copy.deepcopy(config)
    config.pop("producer", None)
    mixed = config["quant_algo"] == "MIXED_PRECISION"
    for key in ("ignore", "exclude_modules"):
        excluded = sorted(m for m in modules if any(fnmatch.fnmatch(m, e) for e in config.pop(key, ())))
        if not mixed:
            config[key] = excluded
    if mixed:  # they list what is quantized alone; vLLM insists on the other keys, too
        config.pop("group_size", None)
        config["quantized_layers"] = {module: config["quantized_layers"][name] for name in config["quantized_layers"]
                                      for module in spelled_out([name], modules)}
    if "config_groups" in config:
        groups = [group if group["targets"] == ["Linear"] else
                  group | {"targets": spelled_out(group["targets"], modules)}
                  for group in config["config_groups"].values()]
        config["config_groups"] = sorted(groups, key=lambda group: json.dumps(group, sort_keys=True))
    return config


def expect_the_same(ours, other, source):
    # transformers 5.24 keeps routers in FP32 as it loads them, and ModelOpt exports them so; ours are copied.
    routers = {name: entry for name, entry in layout(ours).items() if name.endswith(".mlp.gate.weight")}
    assert layout(ours) == {name: routers.get(name, entry) for name, entry in layout(other).items()}
    modules = linear_modules(source)
    for file, key in (("config.json", "quantization_config"), ("hf_quant_config.json", "quantization")):
        mine, their = (normal(json.loads((folder / file).read_text())[key], modules)
                       for folder in (ours, other))
        assert mine == their, file


@pytest.mark.parametrize("recipe", RECIPES)
def test_recipes_have_the_layout_of_modelopts_export(source, tmp_path, recipe):
    if reason := LEFT_OUT.get((source.name.rpartition("-")[0], recipe)):
        pytest.skip(reason)
    ours = tmp_path / "ours"
    nvfp4.quantize_checkpoint(source / "model", ours, recipe=recipe, statistics=source / "stats", method="mse")
    expect_the_same(ours, theirs(source, RECIPES[recipe](), tmp_path / "theirs"), source)


def test_without_statistics_the_cache_is_cast(source, tmp_path):
    if reason := LEFT_OUT.get((source.name.rpartition("-")[0], "nvidia")):
        pytest.skip(reason)
    ours = tmp_path / "ours"
    nvfp4.quantize_checkpoint(source / "model", ours, recipe="nvidia")
    assert not [name for name in layout(ours) if name.endswith((".k_scale", ".v_scale"))]
    expect_the_same(ours, theirs(source, attention_in_fp8_with_a_cast_cache(), tmp_path / "theirs"), source)
