"""Tiny models of the most used families: saved by transformers, quantized here, and loaded again.

After `convert --to bf16` a family's model must load as its source did, with weights that NVFP4 can
have made of the source's, and give its logits within what those weights allow. In
compressed-tensors it must load as it is, where transformers can do that.
"""

import copy
import json
import os

import pytest

os.environ.setdefault("HF_HUB_OFFLINE", "1")
torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers", reason="transformers is not installed")
pytest.importorskip("compressed_tensors", reason="compressed-tensors is not installed")

import nvfp4
from test_transformers import plain_parameters, quantized_linears

pytestmark = pytest.mark.usefixtures("without_our_backend")

transformers.utils.logging.set_verbosity_error()
transformers.utils.logging.disable_progress_bar()
#: Llama 4 of transformers 5.24 reads it, and nothing sets it.
transformers.modeling_outputs.MoeCausalLMOutputWithPast.image_outputs = None

TOKENS = torch.arange(3, 27).reshape(2, 12)
TEXT = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
        "num_attention_heads": 4, "vocab_size": 256}
DECODER = TEXT | {"num_key_value_heads": 2}
#: Every token goes to every expert: a router's choice would be a step in the logits.
EXPERTS = {"num_local_experts": 4, "num_experts_per_tok": 4}
SPECIAL = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
VISION = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
          "num_attention_heads": 4, "image_size": 28, "patch_size": 14}
SPEECH = {"vocab_size": 256, "d_model": 64, "encoder_layers": 2, "decoder_layers": 2,
          "encoder_attention_heads": 4, "decoder_attention_heads": 4, "encoder_ffn_dim": 128,
          "decoder_ffn_dim": 128}
T5 = {"vocab_size": 256, "d_model": 64, "d_kv": 16, "d_ff": 128, "num_layers": 2, "num_heads": 4,
      "decoder_start_token_id": 0}

#: name -> class of the model, class of its configuration, arguments of that
FAMILIES = {
    "llama": ("LlamaForCausalLM", "LlamaConfig", DECODER),
    "mistral": ("MistralForCausalLM", "MistralConfig", DECODER | {"head_dim": 16}),
    "mixtral": ("MixtralForCausalLM", "MixtralConfig", DECODER | EXPERTS),
    "qwen2": ("Qwen2ForCausalLM", "Qwen2Config", DECODER),
    "qwen3": ("Qwen3ForCausalLM", "Qwen3Config", DECODER | {"head_dim": 16}),
    "qwen2_moe": ("Qwen2MoeForCausalLM", "Qwen2MoeConfig", DECODER | {
        "moe_intermediate_size": 96, "shared_expert_intermediate_size": 96, "num_experts": 4,
        "num_experts_per_tok": 4}),
    "qwen3_moe": ("Qwen3MoeForCausalLM", "Qwen3MoeConfig", DECODER | {
        "head_dim": 16, "moe_intermediate_size": 96, "num_experts": 4, "num_experts_per_tok": 4,
        "decoder_sparse_step": 1, "mlp_only_layers": []}),
    "gemma2": ("Gemma2ForCausalLM", "Gemma2Config",
               DECODER | {"head_dim": 16, "query_pre_attn_scalar": 16}),
    "gemma3": ("Gemma3ForConditionalGeneration", "Gemma3Config", {
        "text_config": DECODER | {"head_dim": 16, "query_pre_attn_scalar": 16},
        "vision_config": VISION, "mm_tokens_per_image": 4, "image_token_index": 255,
        "boi_token_index": 253, "eoi_token_index": 254}),
    "phi3": ("Phi3ForCausalLM", "Phi3Config", DECODER | SPECIAL),
    "gpt_oss": ("GptOssForCausalLM", "GptOssConfig",
                DECODER | EXPERTS | {"head_dim": 16, "pad_token_id": 0}),
    "deepseek_v3": ("DeepseekV3ForCausalLM", "DeepseekV3Config", TEXT | {
        "num_key_value_heads": 4, "moe_intermediate_size": 96, "n_routed_experts": 4,
        "num_experts_per_tok": 4, "n_group": 1, "topk_group": 1, "first_k_dense_replace": 1,
        "q_lora_rank": 32, "kv_lora_rank": 32, "qk_rope_head_dim": 16, "qk_nope_head_dim": 16,
        "v_head_dim": 16}),
    "glm4": ("Glm4ForCausalLM", "Glm4Config", DECODER | {"head_dim": 16, "pad_token_id": 0}),
    "llama4": ("Llama4ForConditionalGeneration", "Llama4Config", {
        "text_config": DECODER | EXPERTS | {"head_dim": 16, "intermediate_size_mlp": 128,
                                            "pad_token_id": 0},
        "vision_config": VISION | {"intermediate_size": 256, "vision_output_dim": 64,
                                   "projector_input_dim": 64, "projector_output_dim": 64},
        "image_token_index": 255}),
    "granitemoe": ("GraniteMoeForCausalLM", "GraniteMoeConfig", DECODER | EXPERTS),
    "qwen2_5_vl": ("Qwen2_5_VLForConditionalGeneration", "Qwen2_5_VLConfig", {
        "text_config": DECODER | {"rope_parameters": {
            "rope_type": "default", "rope_theta": 1e4, "mrope_section": [2, 3, 3]}},
        "vision_config": {"hidden_size": 64, "intermediate_size": 128, "depth": 2, "num_heads": 4,
                          "out_hidden_size": 64, "patch_size": 14, "window_size": 56,
                          "fullatt_block_indexes": [1]},
        "image_token_id": 255, "video_token_id": 254, "vision_start_token_id": 253,
        "vision_end_token_id": 252}),
    "llava": ("LlavaForConditionalGeneration", "LlavaConfig", {
        "text_config": DECODER | {"model_type": "llama"},
        "vision_config": VISION | {"model_type": "clip_vision_model"}, "image_token_index": 255}),
    "whisper": ("WhisperForConditionalGeneration", "WhisperConfig", SPEECH | SPECIAL | {
        "num_mel_bins": 16, "max_source_positions": 32, "max_target_positions": 64,
        "decoder_start_token_id": 3, "suppress_tokens": [], "begin_suppress_tokens": []}),
    "t5": ("T5ForConditionalGeneration", "T5Config", T5),
    "t5_gated": ("T5ForConditionalGeneration", "T5Config",
                 T5 | {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}),
    "bart": ("BartForConditionalGeneration", "BartConfig",
             SPEECH | {"max_position_embeddings": 64}),
    "bert": ("BertForMaskedLM", "BertConfig", TEXT | {"max_position_embeddings": 64}),
    "modernbert": ("ModernBertForMaskedLM", "ModernBertConfig",
                   TEXT | SPECIAL | {"cls_token_id": 1, "sep_token_id": 2}),
    "mamba2": ("Mamba2ForCausalLM", "Mamba2Config", SPECIAL | {
        "vocab_size": 256, "hidden_size": 64, "num_hidden_layers": 2, "num_heads": 16,
        "head_dim": 8, "state_size": 16, "n_groups": 1, "expand": 2, "chunk_size": 8}),
    "falcon": ("FalconForCausalLM", "FalconConfig", {
        "vocab_size": 256, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}),
}

#: transformers reads experts in compressed-tensors without their global scales
#: (huggingface/transformers#48371), and those of GPT-OSS not at all. Llama 4's become linear layers.
STACKS_EXPERTS = ("mixtral", "qwen2_moe", "qwen3_moe", "deepseek_v3", "gpt_oss")
#: Its `_init_weights` asks for the plain weight of a linear layer that is compressed.
INITIALIZES_WEIGHTS = ("t5", "t5_gated", "modernbert", "mamba2", "falcon")


def inputs(name, dtype):
    if name == "whisper":
        generator = torch.Generator().manual_seed(3)
        return {"input_features": torch.randn(2, 16, 64, generator=generator).to(dtype),
                "decoder_input_ids": TOKENS}
    if name.startswith("t5") or name == "bart":
        return {"input_ids": TOKENS, "decoder_input_ids": TOKENS}
    return {"input_ids": TOKENS}


def logits(name, model):
    return model(**inputs(name, model.dtype)).logits


def load(name, folder, **options):
    model, info = getattr(transformers, FAMILIES[name][0]).from_pretrained(
        folder, dtype=torch.bfloat16, output_loading_info=True, **options)
    return model.eval(), {key: set(value) for key, value in info.items()}


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """(name, format, scheme) -> (source, quantized, BF16) folders, made once."""
    sources, made = {}, {}

    def get(name, format, scheme):
        if name not in sources:
            torch.manual_seed(1)
            model, config, arguments = FAMILIES[name]
            sources[name] = tmp_path_factory.mktemp(name)
            config = getattr(transformers, config)(**copy.deepcopy(arguments))
            model = getattr(transformers, model)(config).to(torch.bfloat16)
            model.save_pretrained(sources[name] / "source")
        at = sources[name]
        if (name, format, scheme) not in made:
            quantized, plain = at / f"{format}-{scheme}", at / f"{format}-{scheme}-bf16"
            nvfp4.quantize_checkpoint(at / "source", quantized, scheme=scheme, format=format)
            nvfp4.convert(quantized, plain, to="bf16")
            made[name, format, scheme] = at / "source", quantized, plain
        return made[name, format, scheme]

    return get


def with_stacks(parameters):
    """Llama 4's experts, which transformers takes apart for compressed-tensors, as stacks again."""
    parts, rest = {}, {}
    for key, p in parameters.items():
        layer, _, expert = key.rpartition(".experts.")
        number, _, projection = expert.removesuffix(".weight").partition(".")
        if not layer or not number.isdigit():
            rest[key] = p
            continue
        parts.setdefault(layer + ".experts", {})[projection, int(number)] = p
    for layer, experts in parts.items():
        def stack(*projections):
            return torch.stack([torch.cat([experts[p, e] for p in projections]).T
                                for e in range(len(experts) // 3)])
        rest[f"{layer}.gate_up_proj"] = stack("gate_proj", "up_proj")
        rest[f"{layer}.down_proj"] = stack("down_proj")
    return rest


def gradients(model, name, wanted):
    """Returns the gradients of the logits with respect to each parameter that has one."""
    flat = logits(name, model).flatten()
    parameters = list(model.parameters())
    return [torch.autograd.grad(flat[i], parameters, retain_graph=True, allow_unused=True)
            for i in wanted]


def as_double(model):
    torch.nn.Module.double(model)  # transformers refuses to cast a quantized model
    for module in model.modules():
        if getattr(module.__dict__.get("config"), "_experts_implementation", None) is not None:
            module.config._experts_implementation = "eager"  # the others have no kernel for FP64


def check_logits(name, ours, theirs, deltas, bound):
    """For the logits that differ most: |difference| <= bound(∂logit/∂w, Δw of every weight), with
    gradients half-way, where the error of the first order is of the third."""
    as_double(ours), as_double(theirs)
    with torch.no_grad():
        expected = logits(name, ours)
        distance = (logits(name, theirs) - expected).abs().flatten()
    assert distance.isfinite().all() and expected.abs().max() > 0
    worst = distance.topk(6).indices
    half_way = dict(ours.named_parameters())
    with torch.no_grad():
        for key, delta in deltas.items():
            half_way[key] += delta / 2
    for index, row in zip(worst, gradients(ours, name, worst.tolist())):
        pairs = [(g, deltas[key]) for g, key in zip(row, half_way) if g is not None and key in deltas]
        limit = bound(pairs)
        assert distance[index] <= limit, (name, distance[index].item(), limit)
        assert limit < expected.abs().max(), (name, limit)  # a wrong scale must fail


@pytest.mark.parametrize("format", ["modelopt", "compressed-tensors"])
@pytest.mark.parametrize("name", FAMILIES)
def test_the_bf16_model_loads_as_its_source(folders, name, format):
    source, _, plain = folders(name, format, "w4a4")
    theirs, source_info = load(name, source)
    ours, info = load(name, plain)
    assert info == source_info
    expected = dict(theirs.named_parameters())
    deltas = {}
    for key, p in ours.named_parameters():
        assert p.shape == expected[key].shape and p.dtype == expected[key].dtype, key
        if torch.equal(p, expected[key]):
            continue
        deltas[key] = expected[key].double() - p.double()
        # Rounding to E2M1 with scales of 16 normal weights costs about 0.09 of their norm.
        assert deltas[key].norm() <= 0.13 * expected[key].double().norm(), key
    assert len(deltas) >= 4
    # Rounding errors know nothing of the gradients: their sum has this standard deviation.
    check_logits(name, ours, theirs, deltas, lambda pairs: 8 * sum(
        ((g * delta) ** 2).sum() for g, delta in pairs).sqrt().item())


@pytest.mark.parametrize("name", [n for n in FAMILIES
                                  if n not in STACKS_EXPERTS + INITIALIZES_WEIGHTS])
def test_compressed_tensors_load_as_they_are(folders, name):
    """compressed-tensors divides by the global scale where we multiply: a weight differs by at most
    4 · 2^-24 of itself before it is rounded to BF16, and each of the two rounds once."""
    source, quantized, plain = folders(name, "compressed-tensors", "w4a16")
    _, source_info = load(name, source)
    theirs, info = load(name, quantized)
    assert info == source_info
    with torch.no_grad():
        logits(name, theirs)  # decompresses
    assert len(quantized_linears(theirs)) >= 4
    ours, _ = load(name, plain)
    expected = plain_parameters(ours)
    deltas = {}
    for key, p in with_stacks(plain_parameters(theirs)).items():
        deltas[key] = p.double() - expected[key].double()
        assert (deltas[key].abs() <= 2.1 * 2.0**-8 * expected[key].double().abs()).all(), key
    check_logits(name, ours, theirs, {k: d for k, d in deltas.items() if d.any()},
                 lambda pairs: 1e-9 + 1.01 * sum(((g * delta).abs().sum() for g, delta in pairs),
                                                 torch.zeros(())).item())


@pytest.mark.parametrize("format", ["modelopt", "compressed-tensors"])
def test_a_model_in_fp32_becomes_bf16(tmp_path, format):
    """Loaded without a dtype, which config.json must say."""
    torch.manual_seed(1)
    config = transformers.LlamaConfig(**DECODER)
    transformers.LlamaForCausalLM(config).save_pretrained(tmp_path / "source")
    report = nvfp4.quantize_checkpoint(tmp_path / "source", tmp_path / "q", format=format)
    actions = [t["action"] for t in report["tensors"]]
    assert actions.count("quantized") == 14 and actions.count("cast") == 5 + 2  # norms, tables
    assert json.loads((tmp_path / "q" / "config.json").read_text())["dtype"] == "bfloat16"
    folder = tmp_path / "q"
    if format == "modelopt":  # transformers does not read it
        nvfp4.convert(folder, tmp_path / "plain", to="bf16")
        folder = tmp_path / "plain"
    model = transformers.AutoModelForCausalLM.from_pretrained(folder)
    with torch.no_grad():
        assert logits("llama", model).dtype == torch.bfloat16
    kept = nvfp4.quantize_checkpoint(tmp_path / "source", tmp_path / "kept", format=format,
                                     keep_dtype=True)
    assert "cast" not in [t["action"] for t in kept["tensors"]]
