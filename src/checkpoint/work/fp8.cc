#include <algorithm>
#include <cfloat>
#include <cmath>
#include <cstring>

#include "checkpoint/io/grow.h"
#include "checkpoint/work/work.h"

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

GlobalScale Fp8Work::global_scale(const GroupFacts& group) const {
  return {.multiplier = fp8_scale(group.amax)};
}

/// Returns the size of the scales of the first `rows` rows. With blocks, `rows` is a multiple of
/// 128 or all rows.
std::uint64_t Fp8Work::scale_bytes(const WeightSlice& slice, std::int64_t rows) const {
  const std::int64_t cols = slice.cols;
  switch (scales_) {
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

EncodedChunk Fp8Work::encode(const MatrixRows& of, const RowsMethod& method,
                             Buffers& buffers) const {
  const auto& [tensor, slice, row, rows, second] = of;
  const std::int64_t cols = slice.cols;
  const auto input = grow(buffers.input, rows * cols * std::int64_t{sizeof(float)});
  read_floats(of, buffers.strip, input);
  const auto* x = reinterpret_cast<const float*>(input.data());
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t c = 0; c < cols; ++c)
      if (!std::isfinite(x[r * cols + c]))
        throw_non_finite(tensor, slice.offset + (row + r) * slice.row_stride + c * slice.col_stride,
                         1);
  const bool blocks = scales_ == Scales::block, mx = scales_ == Scales::mx,
             one = scales_ == Scales::tensor;
  const std::int64_t high = blocks ? kFp8Block
                            : one  ? rows
                                   : 1,
                     wide = blocks ? kFp8Block
                            : mx   ? kMxfp8Block
                                   : cols;
  const auto codes = grow(buffers.codes, rows * cols);
  const auto scales = grow(buffers.scales, static_cast<std::int64_t>(scale_bytes(slice, rows)));
  std::byte* place = scales.data();
  EncodedChunk chunk{codes, one ? std::span<std::byte>() : scales, {}};
  for (std::int64_t r0 = 0; r0 < rows; r0 += high)
    for (std::int64_t c0 = 0; c0 < cols; c0 += wide) {
      const std::int64_t end = std::min(r0 + high, rows), width = std::min(wide, cols - c0);
      float amax = 0;
      if (!one)
        for (std::int64_t r = r0; r < end; ++r)
          amax = std::max(amax, amax_of(x + r * cols + c0, width));
      float scale = one ? method.global.multiplier : fp8_scale(amax);
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

double Fp8Work::weighted_error(const MatrixRows& rows, const EncodedChunk& chunk, float global,
                               std::span<const double> squares) const {
  const std::int64_t cols = rows.slice.cols;
  const auto scale_at = [&](std::int64_t r, std::int64_t c) {
    if (scales_ == Scales::tensor) return global;
    if (scales_ == Scales::mx) {
      const auto at = static_cast<std::size_t>(r * (cols / kMxfp8Block) + c / kMxfp8Block);
      return std::ldexp(1.0f, std::to_integer<int>(chunk.scales[at]) - 127);
    }
    const std::int64_t at =
        scales_ == Scales::channel ? r : r / kFp8Block * ceil_div(cols, kFp8Block) + c / kFp8Block;
    float scale = 0;
    std::memcpy(&scale, chunk.scales.data() + static_cast<std::size_t>(at) * sizeof scale,
                sizeof scale);
    return scale;
  };
  return sum_weighted(rows, squares, [&](std::int64_t r, std::int64_t c) {
    const E4M3 code{
        std::to_integer<std::uint8_t>(chunk.codes[static_cast<std::size_t>(r * cols + c)])};
    return double{code.to_float()} * double{scale_at(r, c)};
  });
}

void Fp8Work::write(const MatrixOutput& to, const MatrixRows& rows, EncodedChunk& chunk,
                    std::vector<std::byte>& room) const {
  MatrixWork::write(to, rows, chunk, room);
  if (!chunk.scales.empty())
    to.writer.write(to.places.scales, scale_bytes(rows.slice, rows.row), chunk.scales);
}

void Fp8Work::write_scales(const MatrixOutput& to, const GlobalScale& global) const {
  if (scales_ == Scales::tensor) to.write(to.places.scales, global.multiplier);
  to.write(to.places.input_global, input_);
  to.write(to.places.marker, to.format->fp8_marker_text);
}

}  // namespace nvfp4::checkpoint
