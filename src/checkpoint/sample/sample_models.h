#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/base/json.h"

namespace nvfp4::checkpoint {

struct SampleTensor {
  enum class Fill : std::uint8_t { weight, norm, bias };
  std::string name;
  std::vector<std::int64_t> shape;
  Fill fill = Fill::weight;
  double sigma = 0.02;
  bool f32 = false;  ///< otherwise BF16
};

/// A synthetic model: its tensors, in order, and its small files.
struct SampleModel {
  std::vector<SampleTensor> tensors;
  Json config, generation_config, tokenizer_config;
};

/// Returns names and shapes of `arch` with `layers` decoder layers and every width times `scale`.
/// Throws ValueError for an unknown arch or an argument out of range.
SampleModel sample_model(std::string_view arch, int layers, double scale);

}  // namespace nvfp4::checkpoint
