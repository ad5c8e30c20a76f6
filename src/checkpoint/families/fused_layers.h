#pragma once

#include <span>

#include "checkpoint/families/expert_layers.h"
#include "checkpoint/families/fuse.h"

/// Loaders build siblings such as q_proj, k_proj and v_proj as one module, with one kind of
/// weights.
namespace nvfp4::checkpoint {

/// Where the rows of one keep it, keeps those that are fused with it too, unless the user's
/// patterns name them.
void keep_fused_layers_whole(std::span<const Choice> choices, const FuseRules& rules);

}  // namespace nvfp4::checkpoint
