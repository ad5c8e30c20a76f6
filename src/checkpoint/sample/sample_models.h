#pragma once

#include <cstdint>
#include <span>
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

/// Synthetic weights that quantize like trained ones: Student-t with five degrees of freedom, times
/// a lognormal factor for each row and each column. Every element is a pure function of (seed,
/// tensor name, index). Chunks can be filled in any order and on any thread.
class SampleWeights {
 public:
  /// `sigma` is the standard deviation before the row and column factors.
  SampleWeights(std::uint64_t seed, std::string_view tensor, std::int64_t cols, double sigma);

  /// Writes the BF16 bits of rows [first_row, first_row + out.size() / cols).
  void fill(std::int64_t first_row, std::span<std::uint16_t> out) const;

 private:
  std::uint64_t key_;
  std::int64_t cols_;
  double sigma_;
  std::vector<float> column_factors_;
};

/// Returns mean + spread · t in FP32, for norms, biases and other small vectors.
std::vector<float> sample_vector(std::uint64_t seed, std::string_view tensor, std::int64_t size,
                                 double mean, double spread);

}  // namespace nvfp4::checkpoint
