#pragma once

#include "checkpoint/plan/plan.h"

namespace nvfp4::checkpoint {

/// Reads a model folder and writes another one, as quantize_checkpoint() says; what happens to each
/// tensor is a matter of the options. Throws as quantize_checkpoint() does.
QuantizeReport transform_checkpoint(TransformOptions options);

}  // namespace nvfp4::checkpoint
