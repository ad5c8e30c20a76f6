#pragma once

#include <span>
#include <string>
#include <string_view>

namespace nvfp4::checkpoint {

/// Reports whether a tensor stays FP32 in a model that is loaded in BF16. Such tensors are router
/// biases, state space parameters and those that transformers loads as FP32 in this family.
/// `model_types`: from config.json.
bool stays_f32(std::string_view tensor, std::span<const std::string> model_types);

}  // namespace nvfp4::checkpoint
