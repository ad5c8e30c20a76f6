#include <algorithm>
#include <cmath>

#include "checkpoint/io/grow.h"
#include "checkpoint/work/work.h"

namespace nvfp4::checkpoint {
namespace {

constexpr std::int64_t kMxBlock = 32;
constexpr int kBias = 127;  ///< exponent bias of E8M0
constexpr std::uint8_t kExponentNaN = 255;
/// The exponents of block scales. The largest block gets 2^8, so that the range 2^-9 ... 2^8 is
/// usable.
constexpr int kLargest = 8, kSmallest = -9;
/// The smallest exponent of a global scale. With a smaller one, the scale or its reciprocal is not
/// a normal float.
constexpr int kLowestGlobal = -100;

bool all_zero(std::span<const std::byte> codes) {
  return std::ranges::all_of(codes,
                             [](std::byte c) { return (c & std::byte{0x77}) == std::byte{0}; });
}

/// Returns both nibbles divided by 2^shift, ties to even.
std::byte shifted(std::byte pair, int shift) {
  const auto nibble = [&](unsigned bits) {
    const E2M1 code{static_cast<std::uint8_t>(bits)};
    return static_cast<unsigned>(E2M1::from_float(std::ldexp(code.to_float(), -shift)).bits);
  };
  const auto both = std::to_integer<unsigned>(pair);
  return static_cast<std::byte>(nibble(both & 15) | nibble(both >> 4) << 4);
}

/// Transcodes one row in memory. Its first block is number `first`; codes keep their places.
void transcode_row(std::span<const std::byte> exponents, int global, std::int64_t first,
                   std::span<std::byte> codes, std::span<std::byte> scales,
                   std::vector<std::int64_t>& clamped) {
  for (std::size_t b = 0; b < exponents.size(); ++b) {
    const int exponent = std::to_integer<int>(exponents[b]) - kBias - global;
    const auto block = codes.subspan(b * kMxBlock / 2, kMxBlock / 2);
    if (exponent < kSmallest && !all_zero(block)) {
      clamped.push_back(first + static_cast<std::int64_t>(b));
      for (std::byte& pair : block) pair = shifted(pair, kSmallest - exponent);
    }
    const auto bits = static_cast<std::byte>(
        E4M3::from_float(std::ldexp(1.0f, std::clamp(exponent, kSmallest, kLargest))).bits);
    scales[2 * b] = scales[2 * b + 1] = bits;
  }
}

}  // namespace

AmaxResult TranscodeWork::measure(const LogicalTensor& tensor, std::int64_t begin,
                                  std::int64_t count, const Backend& /*backend*/,
                                  Buffers& buffers) const {
  const std::int64_t first = begin / kMxBlock, blocks = (begin + count - 1) / kMxBlock + 1 - first;
  const auto exponents = grow(buffers.input, blocks);
  tensor.scales.read(first, exponents);
  const auto largest = std::to_integer<std::uint8_t>(*std::ranges::max_element(exponents));
  return {std::ldexp(1.0f, std::min<int>(largest, kExponentNaN - 1) - kBias),
          largest != kExponentNaN};
}

GlobalScale TranscodeWork::global_scale(const GroupFacts& group) const {
  const int exponent = std::max(std::ilogb(group.amax) - kLargest, kLowestGlobal);
  return {.multiplier = std::ldexp(1.0f, exponent), .divisor = std::ldexp(1.0f, -exponent)};
}

EncodedChunk TranscodeWork::encode(const MatrixRows& of, const RowsMethod& method,
                                   Buffers& buffers) const {
  const auto& [tensor, slice, row, rows, second] = of;
  const GlobalScale& global = method.global;
  const std::int64_t cols = slice.cols;
  const auto codes = grow(buffers.codes, rows * cols / 2);
  const auto scales = grow(buffers.scales, rows * cols / kBlock);
  const auto exponents = grow(buffers.strip, cols / kMxBlock);
  EncodedChunk chunk{codes, scales, {}};
  for (std::int64_t i = 0; i < rows; ++i) {
    const std::int64_t begin = slice.offset + (row + i) * slice.row_stride;
    const auto part = [&](std::span<std::byte> all, std::int64_t bytes) {
      return all.subspan(static_cast<std::size_t>(i * bytes), static_cast<std::size_t>(bytes));
    };
    tensor.data.read(begin / 2, part(codes, cols / 2));
    tensor.scales.read(begin / kMxBlock, exponents);
    transcode_row(exponents, std::ilogb(global.multiplier), begin / kMxBlock, part(codes, cols / 2),
                  part(scales, cols / kBlock), chunk.outcome.clamped);
  }
  chunk.outcome.clamped_blocks = chunk.outcome.clamped.size();
  // The error of clamped blocks, and the squared norm of the values.
  const auto values = grow(buffers.input, rows * cols * dtype_size(DType::f32));
  read_rows(of, buffers.strip, values);
  const QuantizedView q({.rows = rows, .cols = cols},
                        reinterpret_cast<const std::uint8_t*>(codes.data()),
                        reinterpret_cast<const std::uint8_t*>(scales.data()), &global.multiplier);
  chunk.outcome.error = quantization_error({values.data(), DType::f32, rows, cols}, q);
  return chunk;
}

}  // namespace nvfp4::checkpoint
