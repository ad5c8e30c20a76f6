// NVFP4 of MLX, and of Ollama's runner for it: eight codes in a 32-bit word, scales as bytes.
// Sources: github.com/ml-explore/mlx, mlx/ops.cpp (fp_quantize); github.com/ml-explore/mlx-lm,
// mlx_lm/utils.py; github.com/ollama/ollama, x/create, x/mlxrunner/model/linear.go.
#include <fmt/format.h>

#include <charconv>

#include "checkpoint/families/family.h"
#include "checkpoint/formats/format.h"

namespace nvfp4::checkpoint {

extern const CheckpointFormat kMlx;

namespace {

using enum safetensors::DType;

/// Reports whether the tensor has codes of NVFP4: MXFP4 has half as many scales, and MXFP8 a fourth
/// of them for as many words.
bool has_scales(const StoredTensor& codes, const StoredTensor& scales) {
  if (codes.info->dtype != u32 || !scales || scales.info->dtype != u8) return false;
  const auto &words = codes.info->shape, &bytes = scales.info->shape;
  return words.size() >= 2 && bytes.size() == words.size() && bytes.back() <= words.back() &&
         2 * bytes.back() == words.back();
}

/// Reports whether the weight is MLX's. A stored global scale is not read: its unit is not known.
bool claims(const TensorTable& table, const StoredTensor& codes, const std::string& module) {
  return has_scales(codes, table.find(module + ".scales")) && !table.find(module + ".biases") &&
         !table.find(module + ".global_scale");
}

template <bool global>
bool claims_ollama(const TensorTable& table, const StoredTensor& codes, const std::string& module) {
  return has_scales(codes, table.find(module + ".weight.scale")) &&
         !table.find(module + ".weight.bias") &&
         static_cast<bool>(table.find(module + ".weight.global_scale")) == global;
}

/// Returns the name of stacked experts in the model: MLX calls them "switch_mlp", and their
/// matrices "gate_proj", "up_proj" and "down_proj" in every family.
std::string model_module(const std::string& module) {
  constexpr std::string_view kStack = ".switch_mlp.", kWithNumbers = "block_sparse_moe";
  const std::size_t at = module.rfind(kStack);
  if (at == module.npos) return module;
  const std::string_view parent = std::string_view(module).substr(0, at);
  std::string_view last = std::string_view(module).substr(at + kStack.size());
  if (parent.ends_with(kWithNumbers))
    last = last == "gate_proj"   ? "w1"
           : last == "down_proj" ? "w2"
           : last == "up_proj"   ? "w3"
                                 : last;
  return fmt::format("{}.experts.{}", parent, last);
}

/// The models whose experts mlx-lm reads from "switch_mlp". Source: mlx_lm/models/*.py.
constexpr std::string_view kSwitchMlp =
    "bailing_moe* deepseek deepseek_v2 deepseek_v3 deepseek_v32 ernie4_5_moe exaone_moe glm4_moe "
    "glm4_moe_lite glm_moe_dsa hunyuan hunyuan_v1_moe kimi_k2 kimi_k25 longcat_flash mellum "
    "mimo_v2_flash minimax minimax_m2 mixtral olmoe phimoe qwen2_moe qwen3_5_moe qwen3_5_moe_text "
    "qwen3_moe qwen3_next qwen3_vl_moe";

/// Returns the place of "a.mlp.experts.7.up_proj", or of Mixtral's "a.experts.7.w3".
std::optional<ExpertPlace> expert_place(const std::string& module,
                                        std::span<const std::string> model_types) {
  constexpr std::string_view kExperts = ".experts.";
  const std::size_t at = module.rfind(kExperts);
  const auto is_listed = [](const std::string& type) { return is_model_type(kSwitchMlp, type); };
  if (at == module.npos || std::ranges::none_of(model_types, is_listed)) return std::nullopt;
  ExpertPlace place;
  const char* const end = module.data() + module.size();
  const auto [behind, error] =
      std::from_chars(module.data() + at + kExperts.size(), end, place.expert);
  if (error != std::errc() || behind == end || *behind != '.' || place.expert < 0)
    return std::nullopt;
  const std::string_view last(behind + 1, end);
  for (const auto& [numbered, name] :
       {std::pair{"w1", "gate_proj"}, std::pair{"w2", "down_proj"}, std::pair{"w3", "up_proj"}})
    if (last == numbered || last == name) {
      place.stack = fmt::format("{}.switch_mlp.{}", module.substr(0, at), name);
      return place;
    }
  return std::nullopt;
}

constexpr WeightNames names(std::string_view scales, std::string_view global,
                            decltype(WeightNames::claims) claims) {
  return {.format = &kMlx,
          .codes = ".weight",
          .scales = scales,
          .global = global,
          .words = true,
          .claims = claims,
          .model_module = model_module};
}

constexpr WeightNames kNames = names(".scales", "", claims),
                      kOllama = names(".weight.scale", "", claims_ollama<false>),
                      kOllamaGlobal =
                          names(".weight.scale", ".weight.global_scale", claims_ollama<true>);
constexpr const WeightNames* kReads[] = {&kNames, &kOllama, &kOllamaGlobal};

/// Returns the configuration of all layers: MLX quantizes those that have scales.
Json quantization_config(const ConfigFacts& /*facts*/) {
  return {{"group_size", 16}, {"bits", 4}, {"mode", "nvfp4"}};
}

KeptReason keeper(const ModelConfig& /*config*/) {
  return [](const std::string& module) {
    return module.ends_with(".kv_b_proj") ? std::string("mlx-lm splits it, without NVFP4") : "";
  };
}

}  // namespace

/// The format has no input scales, and no global scale: a search for block scales covers them all.
const CheckpointFormat kMlx = {.name = "mlx",
                               .reads = kReads,
                               .global_is_optional = true,
                               .names = &kNames,
                               .note = "for Apple silicon, weights alone",
                               .quantization_config = quantization_config,
                               .config_alias = "quantization",
                               .keeper = keeper,
                               .dequantizes_rest = true,
                               .expert_place = expert_place};

}  // namespace nvfp4::checkpoint
