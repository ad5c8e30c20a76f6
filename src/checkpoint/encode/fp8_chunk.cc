#include "checkpoint/encode/fp8_chunk.h"

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <cstring>

#include "checkpoint/io/grow.h"

namespace nvfp4::checkpoint {
namespace {

/// Encodes `count` elements of a row with one scale and adds their error to `error`.
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

std::uint8_t mxfp8_exponent(float amax) {
  constexpr int kBias = 127;
  if (amax == 0) return 0;
  int exponent = 0;
  const float mantissa = std::frexp(amax, &exponent);
  exponent -= mantissa <= 0.875f ? 9 : 8;  // The maximum, 448, is 0.875 · 2⁹.
  return static_cast<std::uint8_t>(std::clamp(exponent, -kBias, kBias) + kBias);
}

std::uint64_t fp8_scale_bytes(const Unit& unit, std::int64_t rows) {
  using Scales = Fp8Module::Scales;
  const std::int64_t cols = unit.slice.cols;
  switch (unit.fp8) {
    case Scales::mx:
      return static_cast<std::uint64_t>(rows * (cols / kMxfp8Block));
    case Scales::block:
      return static_cast<std::uint64_t>(ceil_div(rows, kFp8Block) * ceil_div(cols, kFp8Block)) *
             sizeof(float);
    case Scales::channel:
      return static_cast<std::uint64_t>(rows) * sizeof(float);
    case Scales::tensor:
      break;
  }
  return sizeof(float);
}

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
  const bool blocks = unit.fp8 == Scales::block, mx = unit.fp8 == Scales::mx,
             one = unit.fp8 == Scales::tensor;
  const std::int64_t high = blocks ? kFp8Block
                            : one  ? rows
                                   : 1,
                     wide = blocks ? kFp8Block
                            : mx   ? kMxfp8Block
                                   : cols;
  const auto codes = grow(buffers.codes, rows * cols);
  const auto scales = grow(buffers.scales, static_cast<std::int64_t>(fp8_scale_bytes(unit, rows)));
  std::byte* place = scales.data();
  EncodedChunk chunk{codes, one ? std::span<std::byte>() : scales, {}};
  for (std::int64_t r0 = 0; r0 < rows; r0 += high)
    for (std::int64_t c0 = 0; c0 < cols; c0 += wide) {
      const std::int64_t end = std::min(r0 + high, rows), width = std::min(wide, cols - c0);
      float amax = 0;
      if (!one)
        for (std::int64_t r = r0; r < end; ++r)
          amax = std::max(amax, amax_of(x + r * cols + c0, width));
      float scale = one ? of_matrix : fp8_scale(amax);
      if (mx) {
        const std::uint8_t exponent = mxfp8_exponent(amax);
        scale = std::ldexp(1.0f, exponent - 127);
        *place++ = static_cast<std::byte>(exponent);
      } else if (!one) {
        std::memcpy(place, &scale, sizeof scale);
        place += sizeof scale;
      }
      for (std::int64_t r = r0; r < end; ++r)
        encode_run(x + r * cols + c0, width, scale, codes.data() + r * cols + c0,
                   chunk.outcome.error);
    }
  return chunk;
}

}  // namespace nvfp4::checkpoint
