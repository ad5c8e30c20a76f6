#include <cmath>
#include <cstring>

#include "checkpoint/encode/chunk.h"

namespace nvfp4::checkpoint {
namespace {

/// The dequantized values of encoded rows.
class Decoded {
 public:
  Decoded(const EncodedChunk& chunk, const Unit& unit, float global)
      : chunk_(chunk), unit_(unit), cols_(unit.slice.cols), global_(global) {}

  double at(std::int64_t r, std::int64_t c) const {
    if (unit_.work == Work::fp8) return fp8(r, c);
    const std::int64_t i = r * cols_ + c;
    const auto pair = std::to_integer<unsigned>(chunk_.codes[static_cast<std::size_t>(i / 2)]);
    const E2M1 code{static_cast<std::uint8_t>(i % 2 == 0 ? pair & 15 : pair >> 4)};
    const E4M3 scale{std::to_integer<std::uint8_t>(
        chunk_.scales[static_cast<std::size_t>(r * (cols_ / kBlock) + c / kBlock)])};
    return double{code.to_float()} * double{scale.to_float()} * double{global_};
  }

 private:
  double fp8(std::int64_t r, std::int64_t c) const {
    using Scales = Fp8Module::Scales;
    const E4M3 code{
        std::to_integer<std::uint8_t>(chunk_.codes[static_cast<std::size_t>(r * cols_ + c)])};
    if (unit_.fp8 == Scales::mx) {
      const std::int64_t exponent = r * (cols_ / kMxfp8Block) + c / kMxfp8Block;
      return std::ldexp(
          double{code.to_float()},
          std::to_integer<int>(chunk_.scales[static_cast<std::size_t>(exponent)]) - 127);
    }
    if (unit_.fp8 == Scales::tensor) return double{code.to_float()} * double{global_};
    const std::int64_t at = unit_.fp8 == Scales::channel
                                ? r
                                : r / kFp8Block * ceil_div(cols_, kFp8Block) + c / kFp8Block;
    float scale = 0;
    std::memcpy(&scale, chunk_.scales.data() + static_cast<std::size_t>(at) * sizeof scale,
                sizeof scale);
    return double{code.to_float()} * double{scale};
  }

  const EncodedChunk& chunk_;
  const Unit& unit_;
  std::int64_t cols_;
  float global_;
};

}  // namespace

double weighted_error(const LogicalTensor& tensor, const Unit& unit, std::int64_t row,
                      std::int64_t rows, const EncodedChunk& chunk, float global,
                      std::span<const double> squares) {
  const std::int64_t cols = unit.slice.cols;
  std::vector<float> x(static_cast<std::size_t>(rows * cols));
  std::vector<std::byte> strip;
  read_floats(tensor, unit.slice, row, rows, strip, std::as_writable_bytes(std::span(x)));
  const Decoded decoded(chunk, unit, global);
  double sum = 0;
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t c = 0; c < cols; ++c) {
      const double lost = double{x[static_cast<std::size_t>(r * cols + c)]} - decoded.at(r, c);
      sum += squares[static_cast<std::size_t>(c)] * lost * lost;
    }
  return sum;
}

}  // namespace nvfp4::checkpoint
