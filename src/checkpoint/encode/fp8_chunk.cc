#include "checkpoint/encode/fp8_chunk.h"

#include <algorithm>
#include <cfloat>
#include <cmath>

#include "checkpoint/io/grow.h"

namespace nvfp4::checkpoint {
namespace {

/// `count` elements of a row with one scale; what they lose is added to `error`.
void encode_run(const float* x, std::int64_t count, float scale, std::byte* codes,
                QuantizationError& error) {
  for (std::int64_t i = 0; i < count; ++i) {
    const E4M3 code = E4M3::from_float(x[i] / scale);
    codes[i] = static_cast<std::byte>(code.bits);
    const double lost = double{x[i]} - double{code.to_float()} * double{scale};
    error.squared_error += lost * lost;
    error.squared_norm += double{x[i]} * double{x[i]};
  }
}

float amax_of(const float* x, std::int64_t count) {
  float amax = 0;
  for (std::int64_t i = 0; i < count; ++i) amax = std::max(amax, std::fabs(x[i]));
  return amax;
}

}  // namespace

float fp8_scale(float amax) { return amax == 0 ? 1 : std::max(amax / E4M3::kMax, FLT_MIN); }

EncodedChunk encode_fp8_chunk(const LogicalTensor& tensor, const Unit& unit, std::int64_t row,
                              std::int64_t rows, float of_matrix, Buffers& buffers) {
  using Scales = Fp8Module::Scales;
  const std::int64_t cols = unit.slice.cols;
  const auto input = grow(buffers.input, rows * cols * std::int64_t{sizeof(float)});
  read_floats(tensor, unit.slice, row, rows, buffers.strip, input);
  const auto* x = reinterpret_cast<const float*>(input.data());
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t c = 0; c < cols; ++c)
      if (!std::isfinite(x[r * cols + c]))
        throw_non_finite(
            tensor,
            unit.slice.offset + (row + r) * unit.slice.row_stride + c * unit.slice.col_stride, 1);
  const bool blocks = unit.fp8 == Scales::block;
  const std::int64_t high = blocks                        ? kFp8Block
                            : unit.fp8 == Scales::channel ? 1
                                                          : rows,
                     wide = blocks ? kFp8Block : cols, across = ceil_div(cols, wide);
  const auto codes = grow(buffers.codes, rows * cols);
  const auto scales =
      grow(buffers.scales, ceil_div(rows, high) * across * std::int64_t{sizeof(float)});
  auto* scale = reinterpret_cast<float*>(scales.data());
  EncodedChunk chunk{codes, unit.fp8 == Scales::tensor ? std::span<std::byte>() : scales, {}};
  for (std::int64_t r0 = 0; r0 < rows; r0 += high)
    for (std::int64_t c0 = 0; c0 < cols; c0 += wide, ++scale) {
      const std::int64_t end = std::min(r0 + high, rows), width = std::min(wide, cols - c0);
      float amax = 0;
      if (unit.fp8 != Scales::tensor)
        for (std::int64_t r = r0; r < end; ++r)
          amax = std::max(amax, amax_of(x + r * cols + c0, width));
      *scale = unit.fp8 == Scales::tensor ? of_matrix : fp8_scale(amax);
      for (std::int64_t r = r0; r < end; ++r)
        encode_run(x + r * cols + c0, width, *scale, codes.data() + r * cols + c0,
                   chunk.outcome.error);
    }
  return chunk;
}

}  // namespace nvfp4::checkpoint
