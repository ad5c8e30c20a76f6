#pragma once

#include "checkpoint/plan/plan.h"
#include "checkpoint/run/run_context.h"

namespace nvfp4::checkpoint {

/// Reads a model folder and writes another one, as quantize_checkpoint() says; what happens to each
/// tensor is a matter of the options. Throws as quantize_checkpoint() does.
QuantizeReport transform_checkpoint(const TransformOptions& options);
/// The same for a model that is open already, and may have been changed.
QuantizeReport transform_model(const ModelFolder& model, const TransformOptions& options,
                               RunContext& context);

}  // namespace nvfp4::checkpoint
