"""Tiny random models of families with experts: which of them become NVFP4, that verify finds no fault, and that
transformers loads what is written as BF16 again."""

import collections
import copy
import json
import os
import pathlib
import re

import pytest

os.environ.setdefault("HF_HUB_OFFLINE", "1")
torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

import nvfp4
import safetensors.torch
from transformers import conversion_mapping

TEXT = dict(hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
            head_dim=16, vocab_size=256, max_position_embeddings=64, pad_token_id=0, bos_token_id=1, eos_token_id=2,
            tie_word_embeddings=False)
LATENT = dict(num_key_value_heads=4, q_lora_rank=32, kv_lora_rank=32, qk_rope_head_dim=16, qk_nope_head_dim=16,
              v_head_dim=16)
ROUTED = dict(n_routed_experts=4, num_experts_per_tok=2, n_group=1, topk_group=1, moe_intermediate_size=96,
              first_k_dense_replace=1)
VISION = dict(hidden_size=64, intermediate_size=128, depth=2, num_heads=4, out_hidden_size=64, patch_size=14)

#: class of the model, class of its configuration, arguments; which tensors of experts are quantized, and how many
FAMILIES = {
    "gpt_oss": ("GptOssForCausalLM", "GptOssConfig", TEXT | dict(num_local_experts=4, num_experts_per_tok=2),
                {"stacked experts": 4}),
    "llama4": ("Llama4ForCausalLM", "Llama4TextConfig", TEXT | dict(
        num_local_experts=4, num_experts_per_tok=2, intermediate_size_mlp=128), {"stacked experts": 4}),
    "mistral4": ("Mistral4ForCausalLM", "Mistral4Config", TEXT | LATENT | ROUTED | dict(
        first_k_dense_replace=0, n_shared_experts=1), {"stacked experts": 4}),
    "granitemoe_swa": ("GraniteMoeSWAForCausalLM", "GraniteMoeSWAConfig", TEXT | dict(
        num_local_experts=4, num_experts_per_tok=2, layer_types=["full_attention", "sliding_attention"]),
        {"stacked experts": 4}),
    "openai_privacy_filter": ("OpenAIPrivacyFilterForTokenClassification", "OpenAIPrivacyFilterConfig", TEXT | dict(
        num_local_experts=4, num_experts_per_tok=2), {"stacked experts": 4}),
    "qwen3_vl_moe": ("Qwen3VLMoeForConditionalGeneration", "Qwen3VLMoeConfig", dict(
        text_config=TEXT | dict(num_experts=4, num_experts_per_tok=2, moe_intermediate_size=96, decoder_sparse_step=1,
                                mlp_only_layers=[]), vision_config=VISION), {"stacked experts": 4}),
    "granitemoe": ("GraniteMoeForCausalLM", "GraniteMoeConfig", TEXT | dict(
        num_local_experts=4, num_experts_per_tok=2), {}),
    "granitemoeshared": ("GraniteMoeSharedForCausalLM", "GraniteMoeSharedConfig", TEXT | dict(
        num_local_experts=4, num_experts_per_tok=2, shared_intermediate_size=128), {}),
    "qwen3_moe": ("Qwen3MoeForCausalLM", "Qwen3MoeConfig", TEXT | dict(
        num_experts=4, num_experts_per_tok=2, moe_intermediate_size=96, decoder_sparse_step=1, mlp_only_layers=[]),
        {"expert": 24}),
    "mixtral": ("MixtralForCausalLM", "MixtralConfig", TEXT | dict(num_local_experts=4, num_experts_per_tok=2),
                {"expert": 24}),
    "deepseek_v3": ("DeepseekV3ForCausalLM", "DeepseekV3Config", TEXT | LATENT | ROUTED, {"expert": 12}),
    "glm4_moe": ("Glm4MoeForCausalLM", "Glm4MoeConfig", TEXT | ROUTED, {"expert": 12}),
    "olmoe": ("OlmoeForCausalLM", "OlmoeConfig", TEXT | dict(num_experts=4, num_experts_per_tok=2), {"expert": 24}),
    "minimax_m2": ("MiniMaxM2ForCausalLM", "MiniMaxM2Config", TEXT | dict(
        num_local_experts=4, num_experts_per_tok=2), {"expert": 24}),
    "granitemoehybrid": ("GraniteMoeHybridForCausalLM", "GraniteMoeHybridConfig", TEXT | dict(
        num_local_experts=4, num_experts_per_tok=2, shared_intermediate_size=128, mamba_n_heads=8, mamba_d_head=16,
        layer_types=["mamba", "attention"]), {}),
    "hy_v4": ("HYV4ForCausalLM", "HYV4Config", TEXT | dict(
        num_experts=4, num_experts_per_tok=2, moe_intermediate_size=96), {"stacked experts": 2}),
    "zaya": ("ZayaForCausalLM", "ZayaConfig", TEXT | dict(
        num_experts=4, num_experts_per_tok=1, moe_intermediate_size=96), {"stacked experts": 4}),
    "gemma4_text": ("Gemma4ForCausalLM", "Gemma4TextConfig", TEXT | dict(
        enable_moe_block=True, num_experts=4, top_k_experts=2, moe_intermediate_size=96, global_head_dim=16,
        hidden_size_per_layer_input=0, vocab_size_per_layer_input=256, num_kv_shared_layers=0,
        layer_types=["sliding_attention", "full_attention"]), {"stacked experts": 4}),
    "step3p7": ("Step3p7ForConditionalGeneration", "Step3p7Config", dict(
        text_config=TEXT | dict(n_routed_experts=4, num_experts_per_tok=2, moe_intermediate_size=96,
                                share_expert_dim=96, mlp_layer_types=["dense", "sparse"],
                                layer_types=["full_attention", "full_attention"]),
        vision_config=dict(hidden_size=64, intermediate_size=128, num_hidden_layers=1, num_attention_heads=4,
                           image_size=56, patch_size=14)), {}),
    "dbrx": ("DbrxForCausalLM", "DbrxConfig", dict(
        d_model=64, n_heads=4, n_layers=2, max_seq_len=64, vocab_size=256, pad_token_id=0,
        attn_config=dict(kv_n_heads=2, rope_theta=1e4, clip_qkv=8.0),
        ffn_config=dict(ffn_hidden_size=128, moe_num_experts=4, moe_top_k=2, hidden_size=64)), {}),
    "phimoe": ("PhimoeForCausalLM", "PhimoeConfig", TEXT | dict(num_local_experts=4, num_experts_per_tok=2),
               {"expert": 24}),
}


def load(model, folder):
    loaded, info = getattr(transformers, model).from_pretrained(folder, dtype=torch.bfloat16,
                                                                output_loading_info=True)
    return dict(loaded.named_parameters()), {key: set(map(str, value)) for key, value in info.items()}


@pytest.mark.parametrize("name", FAMILIES)
def test_experts_are_quantized_or_kept_and_load_again(name, tmp_path):
    model, config, arguments, quantized = FAMILIES[name]
    torch.manual_seed(1)
    getattr(transformers, model)(getattr(transformers, config)(**copy.deepcopy(arguments))).to(
        torch.bfloat16).save_pretrained(tmp_path / "source")
    report = nvfp4.quantize_checkpoint(tmp_path / "source", tmp_path / "out")
    found = collections.Counter(t["kind"] for t in report["tensors"]
                                if t["action"] == "quantized" and t["kind"] in ("expert", "stacked experts"))
    assert found == quantized
    if not quantized:  # and a reason is given
        kept = [t for t in report["tensors"] if t["kind"] == "experts"]
        assert kept and all("no loader reads" in t["reason"] for t in kept)
    findings = nvfp4.verify(tmp_path / "out", source=tmp_path / "source")["findings"]
    assert not [f for f in findings if f["severity"] == "error"], findings
    nvfp4.convert(tmp_path / "out", tmp_path / "plain", to="bf16")
    before, source_info = load(model, tmp_path / "source")
    after, info = load(model, tmp_path / "plain")
    assert info == source_info
    changed = 0
    for key, p in after.items():
        distance = (p.double() - before[key].double()).norm()
        changed += int(distance > 0)
        assert distance <= 0.13 * before[key].double().norm(), key
    assert changed >= 4


#: Their checkpoints have other names, which stay plain, or a rule of their own that merges single experts.
OTHER_NAMES = {"aria", "ernie4_5_vl_moe", "granitemoe", "granitemoehybrid", "granitemoeshared", "inkling", "inkling2",
               "step3p7", "unlimited_ocr"}


def types_without_merge():
    """Model types whose experts are stacks, and for which transformers has no rule that makes them of single ones."""
    rules_of = conversion_mapping.get_checkpoint_conversion_mapping
    models = pathlib.Path(transformers.__file__).parent / "models"
    for file in sorted(models.glob("*/modeling_*.py")):
        if file.parent.name in OTHER_NAMES:
            continue
        text = re.sub(r"\s", "", file.read_text())
        if not re.search(r"class\w*Experts\w*\(nn.Module\)", text) or \
                "nn.Parameter(torch.empty(self.num_experts" not in text:
            continue
        configuration = file.parent / file.name.replace("modeling", "configuration")
        types = re.findall(r'model_type = "([^"]+)"', configuration.read_text()) if configuration.exists() else []
        if not any("Merge" in type(o).__name__ for name in types for rule in rules_of(name) or []
                   for o in getattr(rule, "operations", [])):
            yield from (name for name in types if not re.search("vision|audio|encoder", name))


@pytest.mark.parametrize("type", list(types_without_merge()))
def test_experts_become_the_stacks_that_transformers_reads(type, tmp_path):
    shapes = {"gate_up_proj": (2, 96, 64), "down_proj": (2, 64, 48)}
    if type in ("gpt_oss", "openai_privacy_filter", "qwen3_vl_moe"):  # as x · W needs them
        shapes = {name: (e, k, n) for name, (e, n, k) in shapes.items()}
    source = {f"model.layers.0.mlp.experts.{name}": torch.randn(shape, dtype=torch.bfloat16)
              for name, shape in shapes.items()}
    (tmp_path / "source").mkdir()
    safetensors.torch.save_file(source, tmp_path / "source" / "model.safetensors")
    (tmp_path / "source" / "config.json").write_text(json.dumps({"model_type": type, "hidden_size": 64}))
    nvfp4.quantize_checkpoint(tmp_path / "source", tmp_path / "out")
    nvfp4.convert(tmp_path / "out", tmp_path / "plain", to="bf16")
    plain = safetensors.torch.load_file(tmp_path / "plain" / "model.safetensors")
    assert {name: t.shape for name, t in plain.items()} == {name: t.shape for name, t in source.items()}


def kept_in_fp32():
    """model type -> names that its classes of transformers keep in FP32, by the text of all classes."""
    models = pathlib.Path(transformers.__file__).parent / "models"
    classes = re.findall(r'\("([\w.-]+)", "(\w+)"\)', (models / "auto/modeling_auto.py").read_text())
    kept = collections.defaultdict(set)
    for file in models.glob("*/modeling_*.py"):
        text = file.read_text()
        names = {name for found in re.findall(r"_keep_in_fp32_modules(?:_strict)? = [\[{](.*?)[\]}]", text, re.S)
                 for name in re.findall('"(.+?)"', found)}
        names |= set(re.findall(r"self\.(\w+) = nn\.(?:Parameter|Buffer|Linear)\(.*dtype=torch\.float32", text))
        own = set(re.findall(r"^class (\w+)\(", text, re.M))
        for model_type, name in classes:
            if name in own and not re.search("_(vision|audio|qformer|tokenizer)|apertus1p5_text", model_type):
                kept[model_type] |= names - {"weight", "initialized", "base", "scale", "query"}  # with others' names
    return {model_type: names for model_type, names in kept.items() if names}


def test_what_transformers_keeps_in_fp32_is_not_rounded(tmp_path):
    """With the names of transformers. Those of checkpoints are in narrow_test.cc."""
    rounded, types = {}, 0
    for model_type, names in kept_in_fp32().items():
        folder = tmp_path / model_type
        folder.mkdir()
        tensors = {f"model.layers.0.mlp.gate.{name.removeprefix('mlp.gate.').removeprefix('gate.')}": torch.ones(16)
                   for name in names}
        tensors |= {name + ".weight": torch.ones(64, 64) for name in ("model.layers.0.mlp.up_proj", "model.embed_tokens")}
        safetensors.torch.save_file(tensors, folder / "model.safetensors", {"format": "pt"})
        (folder / "config.json").write_text(json.dumps({"model_type": model_type, "torch_dtype": "float32"}))
        report = nvfp4.quantize_checkpoint(folder, tmp_path / "out", dry_run=True)
        cast = {tensor["name"] for tensor in report["tensors"] if tensor["action"] == "cast"}
        types += "model.embed_tokens.weight" in cast
        if lost := cast - {"model.embed_tokens.weight"}:
            rounded[model_type] = lost
    assert types > 60 and not rounded
