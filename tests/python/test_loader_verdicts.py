"""Compares the verdicts of `nvfp4 verify --for transformers` with transformers, by model type."""

import pytest

import nvfp4

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
pytest.importorskip("compressed_tensors")

pytestmark = pytest.mark.usefixtures("without_our_backend")

SIZES = dict(vocab_size=256, pad_token_id=0, bos_token_id=1, eos_token_id=2)
DECODER = dict(SIZES, hidden_size=64, intermediate_size=128, num_hidden_layers=2,
               num_attention_heads=4, num_key_value_heads=2, head_dim=16)
EXPERTS = dict(DECODER, num_experts=4, num_local_experts=4, num_experts_per_tok=2)
HEAD_DIM = {k: v for k, v in DECODER.items() if k != "head_dim"}
LATENT = dict(EXPERTS, num_key_value_heads=4, moe_intermediate_size=64, kv_lora_rank=32,
              q_lora_rank=32, qk_rope_head_dim=16, qk_nope_head_dim=16, v_head_dim=16, n_group=1,
              topk_group=1, first_k_dense_replace=1)
INKLING2 = dict(SIZES, unpadded_vocab_size=256, hidden_size=64, num_hidden_layers=2,
                num_attention_heads=4, num_key_value_heads=2, head_dim=16, swa_num_attention_heads=4,
                swa_num_key_value_heads=2, swa_head_dim=16, moe_intermediate_size=64,
                n_routed_experts=4, num_experts_per_tok=2, rel_extent=32,
                n_layers_per_attn_res_block=1)
T5 = dict(SIZES, d_model=64, d_kv=16, d_ff=128, num_layers=2, num_heads=4,
          decoder_start_token_id=0)

#: type -> (kind of model, configuration, what is said of it)
TYPES = {
    "llama": ("CausalLM", DECODER, "reads"),
    "qwen3": ("CausalLM", DECODER, "reads"),
    "llama4_text": ("CausalLM", dict(EXPERTS, intermediate_size_mlp=128,
                                     interleave_moe_layer_step=1), "reads"),
    "mixtral": ("CausalLM", EXPERTS, "misreads"),
    "gpt_oss": ("CausalLM", EXPERTS, "misreads"),
    "t5": ("Seq2SeqLM", T5, "refuses"),
    "mt5": ("Seq2SeqLM", T5, "refuses"),
    "falcon": ("CausalLM", HEAD_DIM, "refuses"),
    "mamba2": ("CausalLM", dict(SIZES, hidden_size=64, num_hidden_layers=2, head_dim=16,
                                num_heads=8, state_size=16, n_groups=1), "refuses"),
    "modernbert": ("MaskedLM", HEAD_DIM, "refuses"),
    # Short convolutions that are merged as they are loaded.
    "olmo_hybrid": ("CausalLM", dict(HEAD_DIM, layer_types=["linear_attention", "full_attention"]),
                    "refuses"),
    "bailing_hybrid": ("CausalLM", dict(LATENT, num_mtp_layers=0, layer_group_size=2), "refuses"),
    "eomt": ("UniversalSegmentation",
             dict(hidden_size=64, num_hidden_layers=2, num_attention_heads=4, image_size=64,
                  patch_size=16, num_blocks=1, num_queries=8), "refuses"),
    "inkling2": ("ImageTextToText",
                 dict(text_config=INKLING2, image_token_id=255,
                      vision_config=dict(hidden_size=64, num_hidden_layers=2, num_attention_heads=4,
                                         text_hidden_size=64, projection_hidden_dim=64)), "refuses"),
}

#: type -> the same, where its experts are kept
KEPT_EXPERTS = {
    "qwen3_moe": ("CausalLM", dict(EXPERTS, moe_intermediate_size=64), "refuses"),
    "mixtral": ("CausalLM", EXPERTS, "refuses"),
    "deepseek_v3": ("CausalLM", dict(LATENT, n_routed_experts=4), "refuses"),
    "llama4_text": ("CausalLM", dict(EXPERTS, intermediate_size_mlp=128, num_experts_per_tok=1,
                                     interleave_moe_layer_step=1), "misreads"),
    "gpt_oss": ("CausalLM", EXPERTS, "reads"),
    "granitemoe": ("CausalLM", HEAD_DIM | dict(num_local_experts=4, num_experts_per_tok=2), "reads"),
}


def make(model_type, kind, sizes, folder):
    torch.manual_seed(0)
    config = transformers.AutoConfig.for_model(model_type, **sizes)
    auto = getattr(transformers, f"AutoModelFor{kind}")
    model = auto.from_config(config, dtype=torch.bfloat16).eval()
    for name, p in model.named_parameters():
        if p.dim() >= 2 and "norm" not in name:
            torch.nn.init.normal_(p, std=0.05)
    model.save_pretrained(folder)
    # What stays FP32 does so where it is loaded.
    return auto, auto.from_pretrained(folder, dtype=torch.bfloat16).eval()


def logits(model):
    tokens = torch.arange(3, 35).reshape(2, 16)
    inputs = {"input_ids": tokens}
    if model.config.is_encoder_decoder:
        inputs["decoder_input_ids"] = tokens + 2
    with torch.no_grad():
        return model(**inputs).logits.float()


def verdict_of_loading(auto, folder, source):
    """A misread model has weights of its own, or is far from its source: four bits cost a third."""
    try:
        model, info = auto.from_pretrained(folder, dtype=torch.bfloat16, output_loading_info=True)
    except AttributeError as error:
        assert "weight" in str(error)
        return "refuses"
    except RuntimeError as error:
        assert "automatic conversion of the weights" in str(error)
        return "refuses"
    if info["missing_keys"]:
        return "misreads"
    expected = logits(source)
    away = (logits(model.eval()) - expected).norm() / expected.norm()
    return "reads" if away < 0.7 else "misreads"


def check(model_type, kind, sizes, expected, ignore, tmp_path):
    auto, source = make(model_type, kind, sizes, tmp_path / "source")
    nvfp4.quantize_checkpoint(tmp_path / "source", tmp_path / "out", scheme="nvfp4a16",
                              format="compressed-tensors", ignore=ignore)
    report = nvfp4.verify(tmp_path / "out", loader="transformers")
    said = report["loaders"]["transformers"]["verdict"]
    assert said == expected, report
    assert report["broken"] == (said != "reads")
    assert verdict_of_loading(auto, tmp_path / "out", source) == expected


@pytest.mark.parametrize("model_type", TYPES)
def test_the_verdict_is_what_loading_does(model_type, tmp_path):
    check(model_type, *TYPES[model_type], [], tmp_path)


@pytest.mark.parametrize("model_type", KEPT_EXPERTS)
def test_so_is_that_of_experts_that_are_kept(model_type, tmp_path):
    check(model_type, *KEPT_EXPERTS[model_type], ["*experts.*", "*block_sparse_moe*"], tmp_path)
