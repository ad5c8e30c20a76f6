#pragma once

#include <span>
#include <string>
#include <string_view>

namespace nvfp4::checkpoint {

/// Whether a tensor stays FP32 in a model that is loaded in BF16: router biases, parameters of
/// state spaces, and what transformers keeps in FP32 in this family. `model_types` are
/// config.json's.
bool stays_f32(std::string_view tensor, std::span<const std::string> model_types);

}  // namespace nvfp4::checkpoint
