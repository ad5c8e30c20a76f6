#pragma once

#include <string>

#include "checkpoint/plan/plan.h"

namespace nvfp4::checkpoint {

/// The card of a quantized model for the Hugging Face Hub, Markdown with YAML front matter: what it
/// was made of and how, what that cost, what runs it, its licence. The same for the same model and
/// options: it has no times and names no device. Empty if nothing is quantized.
std::string model_card(const ModelFolder& model, const Plan& plan, const TransformOptions& options,
                       const QuantizeReport& report);

}  // namespace nvfp4::checkpoint
