#pragma once

#include <string>

#include "checkpoint/plan/plan.h"

namespace nvfp4::checkpoint {

/// Returns the card of a quantized model for the Hugging Face Hub: Markdown with YAML front matter.
/// It has the source, the command, the sizes, the errors, the engines and the licence. It is equal
/// for equal models and options, since it has no times and names no device. Empty if nothing is
/// quantized.
std::string model_card(const ModelFolder& model, const Plan& plan, const TransformOptions& options,
                       const QuantizeReport& report);

}  // namespace nvfp4::checkpoint
