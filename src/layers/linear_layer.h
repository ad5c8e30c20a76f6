#pragma once

#include <span>
#include <variant>
#include <vector>

#include "layers/input.h"
#include "layers/scratch.h"
#include "nvfp4/gemm.h"
#include "nvfp4/layers.h"

namespace nvfp4 {

/// The implementation of Linear and GroupedLinear on any device. The scheme decides whether the
/// input is quantized; one GEMM follows.
class LinearLayer {
 public:
  /// Packs one matrix for each group. It consists of the group's parts, whose outputs follow one
  /// another.
  LinearLayer(const char* op, std::span<const std::vector<WeightView>> groups,
              const LinearOptions& options);

  const PackedWeights& weights() const { return weights_; }
  Scheme scheme() const { return scheme_; }
  QuantizedActivation quantize(const char* op, const MatrixView& x, Stream stream) const {
    return input_(op, scheme_, x, stream);
  }

  void forward(const char* op, GemmForm form, const MatrixView& x,
               std::span<const std::int32_t> row_ends, const MatrixSpan& out, Stream stream) const;
  void forward(const char* op, GemmForm form, const QuantizedView& x,
               std::span<const std::int32_t> row_ends, const MatrixSpan& out, Stream stream) const;

 private:
  struct Work {
    QuantizedRows x;
    Rows workspace;
  };

  GemmDescription description(GemmForm form, std::int64_t rows, std::int64_t x_cols) const;
  void run(const char* op, GemmDescription description, const GemmArguments& arguments, Work& work,
           Stream stream) const;

  PackedWeights weights_;
  Matrix bias_;  ///< [1, G · N] or empty, on the device
  InputQuantizer input_;
  Scheme scheme_ = Scheme::w4a4;
  bool batch_invariant_ = false, autotune_ = false;
  std::int64_t max_tokens_ = 0;
  std::string backend_;
  std::span<std::byte> workspace_;
  mutable Scratch<Work> work_;
};

}  // namespace nvfp4
