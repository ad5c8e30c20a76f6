#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/families/select.h"

/// The role of a layer in its model, for recipes.
namespace nvfp4::checkpoint {

/// Returns "attention", "mlp", "experts", "shared_experts", or "linear" for any other matrix that
/// is quantized. For other tensors it returns the kind of classify(), with "_" for spaces:
/// "lm_head", "router", "vision".
std::string layer_kind(std::string_view tensor, const Selection& selection);

/// Returns all kinds that layer_kind() can return, those of quantized layers first.
std::vector<std::string> layer_kinds();

}  // namespace nvfp4::checkpoint
