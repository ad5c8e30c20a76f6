#include "checkpoint/engines/engines.h"

#include <fmt/format.h>

#include <algorithm>

#include "checkpoint/engines/models.h"

namespace nvfp4::checkpoint {
namespace {

// The sources of `algorithms` are quantization/modelopt.py of vLLM and modelopt_quant.py of SGLang.
constexpr Engine kEngines[] = {
    // tests/python/engines/vllm_cases.py loads these.
    {.loader = "vllm",
     .version = kVllmVersion,
     .declared = kVllmModels,
     .loaded = " apertus/ApertusForCausalLM cohere/CohereForCausalLM cohere2/Cohere2ForCausalLM "
               "cohere2_moe/Cohere2MoeForCausalLM deepseek_v2/DeepseekV2ForCausalLM "
               "ernie4_5/Ernie4_5ForCausalLM ernie4_5_moe/Ernie4_5_MoeForCausalLM "
               "exaone4/Exaone4ForCausalLM gemma/GemmaForCausalLM gemma3_text/Gemma3ForCausalLM "
               "glm4/Glm4ForCausalLM glm4_moe/Glm4MoeForCausalLM granite/GraniteForCausalLM "
               "granite_swa/GraniteSWAForCausalLM granitemoe/GraniteMoeForCausalLM "
               "granitemoe_swa/GraniteMoeSWAForCausalLM "
               "granitemoehybrid/GraniteMoeHybridForCausalLM "
               "granitemoeshared/GraniteMoeSharedForCausalLM hyperclovax/HyperCLOVAXForCausalLM "
               "llama/LlamaForCausalLM ministral3/Ministral3ForCausalLM "
               "mistral/MistralForCausalLM mixtral/MixtralForCausalLM "
               "nemotron/NemotronForCausalLM olmoe/OlmoeForCausalLM opt/OPTForCausalLM "
               "phi3/Phi3ForCausalLM qwen2/Qwen2ForCausalLM qwen2_moe/Qwen2MoeForCausalLM "
               "qwen3/Qwen3ForCausalLM qwen3_moe/Qwen3MoeForCausalLM ",
     .algorithms = " FP8 FP8_PER_CHANNEL_PER_TOKEN FP8_PB_WO NVFP4 W4A16_NVFP4 MXFP8 "
                   "MIXED_PRECISION "},
    // tests/python/engines/sglang_cases.py loads these.
    {.loader = "sglang",
     .version = kSglangVersion,
     .declared = kSglangModels,
     .loaded = " arcee/ArceeForCausalLM glm4/Glm4ForCausalLM granite/GraniteForCausalLM "
               "granitemoe/GraniteMoeForCausalLM llama/LlamaForCausalLM "
               "ministral3/Ministral3ForCausalLM mistral/MistralForCausalLM "
               "olmo2/Olmo2ForCausalLM opt/OPTForCausalLM phi3/Phi3ForCausalLM "
               "qwen2/Qwen2ForCausalLM qwen3/Qwen3ForCausalLM starcoder2/Starcoder2ForCausalLM ",
     .algorithms = " FP8 NVFP4 NVFP4_AWQ W4A16_NVFP4 MIXED_PRECISION ",
     // ModelOptNvFp4FusedMoEMethod in modelopt_quant.py
     .no_experts = "its class of NVFP4 experts stops without a Blackwell GPU"},
    {.loader = "tensorrt-llm",
     .version = kTensorRtVersion,
     .declared = kTensorRtModels,
     .loaded = ""},
    // tests/python/test_loader_verdicts.py loads these.
    {.loader = "transformers+nvfp4",
     .version = "transformers 5.24.0",
     .declared = "",
     .loaded = " apertus/ApertusForCausalLM cohere/CohereForCausalLM "
               "cohere2/Cohere2ForCausalLM cohere2_moe/Cohere2MoeForCausalLM "
               "ernie4_5/Ernie4_5ForCausalLM ernie4_5_moe/Ernie4_5_MoeForCausalLM "
               "exaone4/Exaone4ForCausalLM exaone_moe/ExaoneMoeForCausalLM "
               "gemma/GemmaForCausalLM gemma3_text/Gemma3ForCausalLM glm4/Glm4ForCausalLM "
               "glm4_moe/Glm4MoeForCausalLM granite/GraniteForCausalLM "
               "granitemoe/GraniteMoeForCausalLM hy_v3/HYV3ForCausalLM "
               "laguna/LagunaForCausalLM lfm2/Lfm2ForCausalLM llama/LlamaForCausalLM "
               "llama4_text/Llama4ForCausalLM minimax_m2/MiniMaxM2ForCausalLM "
               "mistral/MistralForCausalLM mixtral/MixtralForCausalLM "
               "nemotron/NemotronForCausalLM olmoe/OlmoeForCausalLM phi3/Phi3ForCausalLM "
               "qwen2/Qwen2ForCausalLM qwen2_moe/Qwen2MoeForCausalLM qwen3/Qwen3ForCausalLM "
               "qwen3_moe/Qwen3MoeForCausalLM apertus1p5_text/Apertus1p5TextForCausalLM "
               "arcee/ArceeForCausalLM aria_text/AriaTextForCausalLM beam/BeamForCausalLM "
               "bert/BertLMHeadModel biogpt/BioGptForCausalLM bitnet/BitNetForCausalLM "
               "cwm/CwmForCausalLM diffllama/DiffLlamaForCausalLM doge/DogeForCausalLM "
               "dory/DoryForCausalLM electra/ElectraForCausalLM flint/FlintForCausalLM "
               "glm/GlmForCausalLM gpt_neox/GPTNeoXForCausalLM helium/HeliumForCausalLM "
               "hunyuan_v1_dense/HunYuanDenseV1ForCausalLM "
               "hunyuan_v1_moe/HunYuanMoEV1ForCausalLM jais2/Jais2ForCausalLM "
               "kolibri1/Kolibri1ForCausalLM mellum/MellumForCausalLM "
               "minimax/MiniMaxForCausalLM ministral/MinistralForCausalLM "
               "olmo2/Olmo2ForCausalLM olmo3/Olmo3ForCausalLM phi/PhiForCausalLM "
               "seed_oss/SeedOssForCausalLM smollm3/SmolLM3ForCausalLM "},
};

bool has_word(std::string_view list, std::string_view word) {
  return word.find(' ') == word.npos && list.find(fmt::format(" {} ", word)) != list.npos;
}

}  // namespace

bool Engine::declares(std::string_view architecture) const {
  return has_word(declared, architecture);
}
bool Engine::was_loaded(std::string_view model_type, std::string_view architecture) const {
  return has_word(loaded, fmt::format("{}/{}", model_type, architecture));
}
bool Engine::accepts(std::string_view algorithm) const {
  return algorithms.empty() || has_word(algorithms, algorithm);
}

std::span<const Engine> engines() { return kEngines; }

const Engine* find_engine(std::string_view loader) {
  const auto* engine = std::ranges::find(kEngines, loader, &Engine::loader);
  return engine == std::end(kEngines) ? nullptr : engine;
}

}  // namespace nvfp4::checkpoint
