#pragma once

#include "checkpoint/work/matrix_work.h"

/// FP8 weights: E4M3 elements with FP32 scales for the matrix, each row or each 128 x 128 block.
/// MXFP8 has exponents for each 32 columns.
namespace nvfp4::checkpoint {

/// Returns the scale of elements whose largest magnitude is `amax`: amax / 448, at least the
/// smallest normal float. It is 1 for zeros.
float fp8_scale(float amax);

/// Returns the MXFP8 exponent of such elements, as E8M0. It is that of the smallest power of two
/// under which no element exceeds 448, and 0 for zeros. Source: OCP Microscaling Formats 1.0,
/// section 5.1, with the exponent rounded up, as in ModelOpt
/// (modelopt/torch/quantization/qtensor/mxfp8_tensor.py).
std::uint8_t mxfp8_exponent(float amax);

/// FP8 from values of a dtype or from FP8. A code is E4M3(x / scale); the quotient is rounded to
/// FP32 first, as in PyTorch.
class Fp8Work final : public MatrixWork {
 public:
  using Scales = Fp8Module::Scales;

  /// `input_amax`: the largest magnitude of the layer's inputs, for the scale of those.
  Fp8Work(Scales scales, float input_amax)
      : MatrixWork(scales == Scales::block ? kFp8Block : 1),
        scales_(scales),
        input_(fp8_scale(input_amax)) {}

  std::string_view action() const override { return "fp8"; }
  bool is_measured() const override { return scales_ == Scales::tensor; }
  GlobalScale global_scale(const GroupFacts& group) const override;
  EncodedChunk encode(const MatrixRows& rows, const RowsMethod& method,
                      Buffers& buffers) const override;
  double weighted_error(const MatrixRows& rows, const EncodedChunk& chunk, float global,
                        std::span<const double> squares) const override;
  void write(const MatrixOutput& to, const MatrixRows& rows, EncodedChunk& chunk,
             std::vector<std::byte>& room) const override;
  void write_scales(const MatrixOutput& to, const GlobalScale& global) const override;

 private:
  std::uint64_t scale_bytes(const WeightSlice& slice, std::int64_t rows) const;

  Scales scales_;
  float input_;
};

}  // namespace nvfp4::checkpoint
