#include "checkpoint/encode/transcode.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "checkpoint/io/grow.h"
#include "core/require.h"

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

/// Reads NVFP4 rows [row, row + rows) of a slice.
void read_blocks(const LogicalTensor& t, const WeightSlice& slice, std::int64_t row,
                 std::int64_t rows, std::span<std::byte> codes, std::span<std::byte> scales,
                 Buffers& buffers) {
  const std::int64_t cols = slice.cols, blocks = cols / kBlock;
  // The rows are numbered over all matrices, one below the other.
  const std::int64_t matrix = slice.offset / (t.rows() * t.cols()),
                     inside = slice.offset % (t.rows() * t.cols());
  const std::int64_t step = t.transposed ? slice.row_stride : slice.row_stride / cols,
                     first = matrix * t.outputs() + (t.transposed ? inside : inside / cols) +
                             row * step;
  if (step == 1) return t.read_blocks(first * blocks, codes, scales);
  const std::int64_t between = (rows - 1) * step + 1;
  const auto all_codes = grow(buffers.input, between * cols / 2);
  const auto all_scales = grow(buffers.strip, between * blocks);
  t.read_blocks(first * blocks, all_codes, all_scales);
  const auto pick = [&](std::span<std::byte> from, std::span<std::byte> to, std::int64_t bytes) {
    for (std::int64_t i = 0; i < rows; ++i)
      std::memcpy(to.data() + i * bytes, from.data() + i * step * bytes,
                  static_cast<std::size_t>(bytes));
  };
  pick(all_codes, codes, cols / 2);
  pick(all_scales, scales, blocks);
}

}  // namespace

AmaxResult measure_exponents(const LogicalTensor& tensor, std::int64_t begin, std::int64_t count,
                             Buffers& buffers) {
  const std::int64_t first = begin / kMxBlock, blocks = (begin + count - 1) / kMxBlock + 1 - first;
  const auto exponents = grow(buffers.input, blocks);
  tensor.scales.read(first, exponents);
  const auto largest = std::to_integer<std::uint8_t>(*std::ranges::max_element(exponents));
  return {std::ldexp(1.0f, std::min<int>(largest, kExponentNaN - 1) - kBias),
          largest != kExponentNaN};
}

GlobalScale global_for_exponents(float largest) {
  const int exponent = std::max(std::ilogb(largest) - kLargest, kLowestGlobal);
  return {.multiplier = std::ldexp(1.0f, exponent), .divisor = std::ldexp(1.0f, -exponent)};
}

EncodedChunk transcode_chunk(const LogicalTensor& tensor, const WeightSlice& slice,
                             std::int64_t row, std::int64_t rows, const GlobalScale& global,
                             Buffers& buffers) {
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
  read_rows(tensor, slice, row, rows, buffers.strip, values);
  const QuantizedView q({.rows = rows, .cols = cols},
                        reinterpret_cast<const std::uint8_t*>(codes.data()),
                        reinterpret_cast<const std::uint8_t*>(scales.data()), &global.multiplier);
  chunk.outcome.error = quantization_error({values.data(), DType::f32, rows, cols}, q);
  return chunk;
}

EncodedChunk move_chunk(const LogicalTensor& tensor, const WeightSlice& slice,
                        const MovedScales& moved, std::int64_t row, std::int64_t rows,
                        Buffers& buffers) {
  const std::int64_t cols = slice.cols;
  const auto codes = grow(buffers.codes, rows * cols / 2);
  const auto scales = grow(buffers.scales, rows * cols / kBlock);
  read_blocks(tensor, slice, row, rows, codes, scales, buffers);
  EncodedChunk chunk{codes, scales, {}};
  if (!moved.changes) return chunk;
  const auto view = [&](const float& global) {
    return QuantizedView({.rows = rows, .cols = cols},
                         reinterpret_cast<const std::uint8_t*>(codes.data()),
                         reinterpret_cast<const std::uint8_t*>(scales.data()), &global);
  };
  for (std::byte& s : scales) s &= std::byte{0x7F};
  const auto values = grow(buffers.input, rows * cols * dtype_size(DType::f32));
  const MatrixSpan before(values.data(), DType::f32, rows, cols);
  dequantize_into(view(moved.own), before);
  for (std::byte& s : scales)
    s = static_cast<std::byte>(
        E4M3::from_float(E4M3{std::to_integer<std::uint8_t>(s)}.to_float() * moved.ratio).bits);
  chunk.outcome.error = quantization_error(before, view(moved.global.multiplier));
  return chunk;
}

void arrange(const Arrangement& arrangement, std::int64_t rows, std::int64_t blocks,
             EncodedChunk& chunk, std::vector<std::byte>& tiles) {
  if (arrangement.high_nibble_first)
    for (std::byte& pair : chunk.codes) pair = pair << 4 | pair >> 4;
  if (arrangement.scales == ScaleLayout::linear) return;
  const auto out = grow(tiles, scale_bytes(arrangement.scales, rows, blocks));
  const auto bytes = [](std::span<std::byte> span) {
    return std::span(reinterpret_cast<std::uint8_t*>(span.data()), span.size());
  };
  relayout_scales(bytes(chunk.scales), ScaleLayout::linear, bytes(out), arrangement.scales, rows,
                  blocks);
  chunk.scales = out;
}

}  // namespace nvfp4::checkpoint
