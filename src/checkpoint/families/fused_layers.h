#pragma once

#include <span>

#include "checkpoint/families/expert_layers.h"
#include "checkpoint/families/fuse.h"

/// Fused layers. Loaders build siblings such as q_proj, k_proj and v_proj as one module, with one
/// kind of weights.
namespace nvfp4::checkpoint {

/// Excludes all layers that are fused with a layer whose number of rows excludes it. Layers in the
/// user's patterns stay quantized.
void keep_fused_layers_whole(std::span<const Choice> choices, const FuseRules& rules);

}  // namespace nvfp4::checkpoint
