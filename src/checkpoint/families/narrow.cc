#include "checkpoint/families/narrow.h"

#include <algorithm>

#include "checkpoint/families/family.h"
#include "checkpoint/match/pattern.h"
#include "core/require.h"

namespace nvfp4::checkpoint {
namespace {

/// Of any model: they decide by small differences, or are exponents.
constexpr std::string_view kAlways[] = {
    "A_log",       "A",           "D",           "dt_bias",
    "time_decay",  "time_first",  "sinks",       "e_score_correction_bias",
    "expert_bias", "moe_statics", "latent_mean", "latent_std",
};

/// Whole parts of the name in a row.
bool has_parts(std::string_view name, std::string_view parts) {
  return fmt::format(".{}.", name).find(fmt::format(".{}.", parts)) != std::string::npos;
}

bool is_router_bias(std::string_view tensor) {
  const auto parts = split_name(tensor);
  return parts.size() >= 2 && parts.back() == "bias" &&
         (parts[parts.size() - 2] == "gate" ||
          parts[parts.size() - 2].find("router") != std::string_view::npos);
}

}  // namespace

bool stays_f32(std::string_view tensor, std::span<const std::string> model_types) {
  const auto named = [&](std::string_view name) { return has_parts(tensor, name); };
  if (is_router_bias(tensor) || std::ranges::any_of(kAlways, named)) return true;
  for (const Family* family : families_of(model_types)) {
    if (family->f32.empty()) continue;
    if (std::ranges::any_of(split_name(family->f32, ' '), named)) return true;
  }
  return false;
}

}  // namespace nvfp4::checkpoint
