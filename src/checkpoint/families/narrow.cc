#include "checkpoint/families/narrow.h"

#include <algorithm>

#include "checkpoint/families/family.h"
#include "checkpoint/families/select.h"
#include "checkpoint/match/pattern.h"
#include "core/require.h"

namespace nvfp4::checkpoint {
namespace {

/// Tensors that stay FP32 in any model: they decide by small differences, or are exponents.
constexpr std::string_view kAlways[] = {
    "A_log",       "A",
    "D",           "dt_bias",
    "time_decay",  "time_first",
    "sinks",       "e_score_correction_bias",
    "expert_bias", "balancing_biases",
    "moe_statics", "latent_mean",
    "latent_std",
};

/// Reports whether the name contains these parts, as consecutive whole parts.
bool has_parts(std::string_view name, std::string_view parts) {
  return fmt::format(".{}.", name).find(fmt::format(".{}.", parts)) != std::string::npos;
}

}  // namespace

bool stays_f32(std::string_view tensor, std::span<const std::string> model_types) {
  const auto named = [&](std::string_view name) { return has_parts(tensor, name); };
  if (std::ranges::any_of(kAlways, named)) return true;
  const std::vector<const Family*> families = families_of(model_types);
  constexpr std::string_view kBias = ".bias";
  if (tensor.ends_with(kBias) &&
      is_router(tensor.substr(0, tensor.size() - kBias.size()), families))
    return true;
  for (const Family* family : families) {
    if (family->f32.empty()) continue;
    if (std::ranges::any_of(split_name(family->f32, ' '), named)) return true;
  }
  return false;
}

}  // namespace nvfp4::checkpoint
