"""Models published since the end of 2025, and the format that each layer has in the NVFP4 release of its vendor.

`vendor` maps patterns of modules to formats; the last one that matches decides. Sources are hf_quant_config.json or
config.json of the releases, as ai-dynamo/aiconfigurator has them in model_configs/ ("*" for numbers of layers), or what
`source` names. Models without `vendor` have no public list: they are quantized without a recipe, and `kept` has the kinds
of the linear layers that stay. Names and shapes are those of transformers' classes, with few layers and experts.
"""

from typing import NamedTuple


class Model(NamedTuple):
    type: str  # model_type
    recipe: str = ""
    vendor: dict = {}
    kept: str = ""
    config: dict = {}  # members that differ from the default configuration
    mtp: str = ""  # prefix of a layer for multi-token prediction, which transformers has no class for: a copy of the last
    differs: dict = {}  # patterns of modules whose format differs from the vendor's, and why
    source: str = ""


def excluded(*patterns):
    return {"*": "nvfp4"} | dict.fromkeys(patterns, "keep")


MLA = ("*.q_a_proj", "*.q_b_proj", "*.kv_a_proj_with_mqa", "*.kv_b_proj")
EXPERTS = {"*": "keep", "*.experts.*": "nvfp4"}
GEMMA = ("lm_head", "model.embed_vision*", "model.vision_tower*", "*.self_attn*")
KIMI = ("language_model.lm_head", "*.self_attn*", "mm_projector*", "vision_tower*")
GLM51 = ("lm_head", "model.layers.0.*", "model.layers.1.*", "model.layers.2.*", "model.layers.5.*", "*.self_attn*",
         "*.mlp.shared_experts*")
MINIMAX = ("lm_head", "*.block_sparse_moe.gate", "*.self_attn*")
QWEN35 = ("lm_head", "*.linear_attn*", "*.mlp.shared_expert*", "*.self_attn*", "model.visual*", "mtp*")
QWEN36 = {"*": "keep", "*.mlp.*_proj": "w4a16", "lm_head": "w4a16", "*.linear_attn.out_proj": "fp8",
          "*.linear_attn.in_proj_qkv": "fp8", "*.linear_attn.in_proj_z": "fp8", "*.self_attn.?_proj": "fp8",
          "model.visual*": "keep", "mtp*": "keep"}
NEMOTRON = {"layers_block_type": ["linear_attention", "moe"] * 2 + ["linear_attention", "full_attention", "moe"],
            "moe_intermediate_size": 1856, "moe_shared_expert_intermediate_size": 3712}
SUPER = {"*": "keep", "*.experts.*": "nvfp4", "*.shared_experts.*": "fp8", "*.mixer.in_proj": "fp8",
         "*.mixer.out_proj": "fp8", "mtp*": "keep"}
GLM = {"num_hidden_layers": 5, "mlp_layer_types": ["dense"] * 3 + ["sparse"] * 2}

MODELS = {
    "nvidia/DeepSeek-V3.1-NVFP4": Model("deepseek_v3", "deepseek-r1", excluded(
        "lm_head", *MLA, "model.layers.5.*"), mtp="model.layers.5."),
    "nvidia/DeepSeek-V3.2-NVFP4": Model("deepseek_v32", "deepseek-v3.2", excluded(
        "lm_head", "*.self_attn.indexer*", *MLA, "model.layers.5.*"), config=GLM, mtp="model.layers.5."),
    "nvidia/DeepSeek-V4-Pro-NVFP4": Model("deepseek_v4", "deepseek-v4", excluded(
        "*.attn.*", "*.ffn.shared_experts.*", "head", "mtp.*"), mtp="mtp.0."),
    "nvidia/DeepSeek-V4-Flash-NVFP4": Model("deepseek_v4", "deepseek-v4", excluded(
        "*.attn.*", "*.ffn.shared_experts.*", "head", "mtp.*"), mtp="mtp.0."),
    "nvidia/GLM-5-NVFP4": Model("glm_moe_dsa", "glm-5", excluded(
        "lm_head", "*.self_attn.indexer*", *MLA, "*.self_attn.o_proj", "model.layers.5.*"), config=GLM,
        mtp="model.layers.5."),
    "nvidia/GLM-5.1-NVFP4": Model("glm_moe_dsa", "glm-5.1", excluded(*GLM51), config=GLM, mtp="model.layers.5."),
    "nvidia/GLM-5.2-NVFP4": Model("glm_moe_dsa", "glm-5.1", excluded(*GLM51), config=GLM, mtp="model.layers.5."),
    "RedHatAI/GLM-5.3-Flash-NVFP4": Model(
        "glm5_next", "experts", EXPERTS,
        source="vllm-project/llm-compressor, docs/key-models/glm-5.3-flash/nvfp4-example.md"),
    "nvidia/Gemma-4-31B-IT-NVFP4": Model("gemma4", "gemma-4", excluded(*GEMMA),
                                         config={"text_config": {"hidden_size_per_layer_input": 0}}),
    "nvidia/Gemma-4-26B-A4B-NVFP4": Model(
        "gemma4", "gemma-4-moe", excluded(*GEMMA, "*.layers.?.mlp*", "*.router*"),
        config={"text_config": {"enable_moe_block": True, "num_experts": 4, "top_k_experts": 2,
                                "moe_intermediate_size": 704, "hidden_size_per_layer_input": 0}}),
    "nvidia/Kimi-K2.5-NVFP4": Model("kimi_k25", "kimi-k2.5", excluded(*KIMI)),
    "nvidia/Kimi-K2.6-NVFP4": Model("kimi_k25", "kimi-k2.6", excluded(
        *KIMI, "*.layers.0.*", "*.mlp.shared_experts*")),
    "nvidia/Kimi-K2.7-Code-NVFP4": Model("kimi_k25", "kimi-k2.6", excluded(
        *KIMI, "*.layers.0.*", "*.mlp.shared_experts*")),
    "nvidia/MiniMax-M2.5-NVFP4": Model("minimax_m2", "minimax-m2", excluded(*MINIMAX)),
    "nvidia/MiniMax-M2.7-NVFP4": Model("minimax_m2", "minimax-m2", excluded(*MINIMAX)),
    "nvidia/MiniMax-M3-NVFP4": Model("minimax_m3_vl", "minimax-m3", {
        "*": "keep", "*.self_attn.*_proj": "mxfp8", "*.shared_experts.*": "mxfp8", "*.experts.*": "nvfp4",
        "vision_tower*": "keep"}),
    "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-NVFP4": Model("nemotron_h", "nemotron-3-nano", excluded(
        "lm_head", "*.layers.4.mixer.in_proj", "*.layers.4.mixer.out_proj", "*.mixer.[qkvo]_proj", "*.mixer.conv1d"),
        config=NEMOTRON),
    "nvidia/NVIDIA-Nemotron-3-Super-120B-A12B-NVFP4": Model(
        "nemotron_h", "nemotron-3-super", SUPER, config=NEMOTRON | {"moe_latent_size": 1024}, mtp="mtp.layers.0.",
        source="NVIDIA/Model-Optimizer, modelopt_recipes, Nemotron-3-Super-120B-A12B-BF16/ptq/nvfp4-mse.yaml"),
    "nvidia/NVIDIA-Nemotron-3-Ultra-550B-A55B-NVFP4": Model(
        "nemotron_h", "nemotron-3-super", SUPER, config=NEMOTRON | {"moe_latent_size": 2048}, mtp="mtp.layers.0.",
        source="NVIDIA/Model-Optimizer, modelopt_recipes, Nemotron-3-Ultra-550B-A55B-BF16/ptq/nvfp4-4o6.yaml"),
    "nvidia/NVIDIA-Nemotron-3.5-Lightning-30B-A3B-NVFP4": Model("nemotron_h", "nemotron-3.5", {
        "*": "keep", "*.mixer.in_proj": "fp8", "*.mixer.out_proj": "fp8", "*.experts.*": "w4a16",
        "*.shared_experts.*": "w4a16", "lm_head": "w4a16", "mtp*": "keep"}, config=NEMOTRON, mtp="mtp.layers.0."),
    "nvidia/Qwen3.5-122B-A10B-NVFP4": Model("qwen3_5_moe", "qwen3.5", excluded(*QWEN35), mtp="mtp.layers.0."),
    "nvidia/Qwen3.5-397B-A17B-NVFP4": Model("qwen3_5_moe", "qwen3.5", excluded(*QWEN35), mtp="mtp.layers.0."),
    "nvidia/Qwen3.6-27B-NVFP4": Model("qwen3_5", "qwen3.6", QWEN36, mtp="mtp.layers.0."),
    "nvidia/Qwen3.6-35B-A3B-NVFP4": Model("qwen3_5_moe", "qwen3.6", QWEN36, mtp="mtp.layers.0."),
    # No NVFP4 release with a public list: the layers in MXFP4 of gpt-oss, those in FP8 of Mistral Large 3, and those that
    # ModelOpt's example quantizes.
    "openai/gpt-oss-120b": Model("gpt_oss", "gpt-oss", EXPERTS | {"*.experts.*_proj": "nvfp4"}),
    "mistralai/Mistral-Large-3-675B-Instruct-2512": Model(
        "mistral3", "mistral-large-3", excluded(
            "*.q_a_proj", "*.kv_a_proj_with_mqa", "*lm_head", "vision_*", "*patch_merger*", "multi_modal*"),
        config={"text_config": {"model_type": "deepseek_v3"}},
        differs={"*.kv_b_proj": "engines take it apart and multiply by its halves"},
        source="vllm-project/llm-compressor, docs/key-models/mistral-large-3/fp8-example.md"),
    "black-forest-labs/FLUX.2-dev": Model(
        "Flux2Transformer2DModel", "flux.2", excluded(
            "proj_out*", "*time_text_embed*", "*context_embedder*", "*x_embedder*", "*norm_out*",
            "*time_guidance_embed*", "*stream_modulation*"),
        config={"num_layers": 2, "num_single_layers": 2, "num_attention_heads": 2},
        source="NVIDIA/Model-Optimizer, examples/diffusers/quantization/utils.py"),
    "Wan-AI/Wan2.2-T2V-A14B": Model(
        "WanTransformer3DModel", "wan2.2", excluded(
            "*patch_embedding*", "*condition_embedder*", "*proj_out*",
            *(f"blocks.{n}.*" for n in (0, 1, 2, 37, 38, 39))),
        config={"num_layers": 40, "num_attention_heads": 2, "ffn_dim": 512},
        source="NVIDIA/Model-Optimizer, examples/diffusers/quantization/utils.py"),
    # Without a public list, by the types of transformers.
    "afmoe": Model("afmoe", kept="lm_head, router"),
    "axk1": Model("axk1", kept="latent attention, lm_head, router"),
    "solar_open": Model("solar_open", kept="lm_head, router"),
    "exaone_moe": Model("exaone_moe", kept="lm_head, router"),
    "mimo_v2_flash": Model("mimo_v2_flash", kept="lm_head, router"),
    "glm4_moe_lite": Model("glm4_moe_lite", kept="latent attention, lm_head, router"),
    "glm_ocr": Model("glm_ocr", kept="lm_head, vision"),
    "step3p7": Model("step3p7", kept="experts, lm_head, router, vision"),
    "hy_v3": Model("hy_v3", kept="lm_head, router"),
    "mistral4": Model("mistral4", kept="latent attention, lm_head, router"),
    "longcat_flash": Model("longcat_flash", kept="latent attention, lm_head"),
    "lfm3": Model("lfm3", kept="lm_head"),
    "bailing_hybrid": Model("bailing_hybrid", kept="latent attention, lm_head, router"),
    "youtu": Model("youtu", kept="latent attention, lm_head"),
    "voxtral_realtime": Model("voxtral_realtime", kept="audio, lm_head, vision"),
    "qwen3_asr": Model("qwen3_asr", kept="audio, lm_head, vision"),
    "cosmos3_omni": Model("cosmos3_omni", kept="lm_head, vision"),
}
