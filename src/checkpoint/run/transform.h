#pragma once

#include "checkpoint/plan/plan.h"

namespace nvfp4::checkpoint {

/// Reads a model folder and writes another one, as described at quantize_checkpoint(). The options
/// decide what happens to each tensor. Throws as quantize_checkpoint() does.
QuantizeReport transform_checkpoint(TransformOptions options);

}  // namespace nvfp4::checkpoint
