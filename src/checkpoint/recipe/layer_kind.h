#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/families/select.h"

/// What a layer does in its model, for recipes.
namespace nvfp4::checkpoint {

/// "attention", "mlp", "experts", "shared_experts", and "linear" for any other matrix that is
/// quantized; else what classify() calls it, with "_" for spaces: "lm_head", "router", "vision".
std::string layer_kind(std::string_view tensor, const Selection& selection);

/// All that layer_kind() may say, those of quantized layers first.
std::vector<std::string> layer_kinds();

}  // namespace nvfp4::checkpoint
