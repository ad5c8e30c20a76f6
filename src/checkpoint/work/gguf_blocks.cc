#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <optional>

#include "checkpoint/gguf/blocks.h"
#include "checkpoint/io/grow.h"
#include "checkpoint/work/work.h"
#include "core/require.h"

namespace nvfp4::checkpoint {
namespace {

/// Returns the scale of a row of INT8, with which Q8_0 holds the row's integers. Null for other
/// weights, and for a scale that is no positive FP16 number.
std::optional<float> scale_of_integers(const LogicalTensor& t, std::int64_t row) {
  if (t.encoding() != Encoding::int8) return std::nullopt;
  const safetensors::DType dtype = t.scales.info->dtype;
  const auto size = static_cast<std::size_t>(safetensors::dtype_bits(dtype)) / 8;
  std::array<std::byte, 4> bytes{};
  t.scales.read(row / t.block_rows * static_cast<std::int64_t>(size), std::span(bytes).first(size));
  float scale = 0;
  to_floats(dtype, std::span(bytes).first(size), {&scale, 1});
  const bool is_fp16 = scale > 0 && FP16::from_float(scale).to_float() == scale;
  return is_fp16 ? std::optional(scale) : std::nullopt;
}

}  // namespace

EncodedChunk Q8Work::encode(const MatrixRows& of, const RowsMethod& /*method*/,
                            Buffers& buffers) const {
  const std::int64_t count = of.rows * of.slice.cols;
  const auto input = grow(buffers.input, count * std::int64_t{sizeof(float)});
  read_floats(of, buffers.strip, input);
  const auto* x = reinterpret_cast<const float*>(input.data());
  const auto codes = grow(buffers.codes, count / gguf::kQ8Block * gguf::kQ8BlockBytes);
  EncodedChunk chunk{codes, {}, {}};
  QuantizationError& error = chunk.outcome.error;
  std::byte* place = codes.data();
  std::optional<float> integers;
  for (std::int64_t b = 0; b < count;
       b += gguf::kQ8Block, x += gguf::kQ8Block, place += gguf::kQ8BlockBytes) {
    if (b % of.slice.cols == 0) integers = scale_of_integers(of.source, of.row + b / of.slice.cols);
    float amax = 0;
    for (std::int64_t i = 0; i < gguf::kQ8Block; ++i) {
      if (!std::isfinite(x[i])) {
        const std::int64_t at = b + i, row = of.row + at / of.slice.cols;
        throw_non_finite(
            of.source,
            of.slice.offset + row * of.slice.row_stride + at % of.slice.cols * of.slice.col_stride,
            1);
      }
      amax = std::max(amax, std::fabs(x[i]));
    }
    // Without a finite inverse the scale is 0 in FP16, too, and so are all codes.
    const float scale = integers.value_or(amax / 127),
                inverse = std::isfinite(1 / scale) ? 1 / scale : 0;
    const FP16 stored = FP16::from_float(scale);
    require<ValueError>(std::isfinite(stored.to_float()),
                        "{}: has a weight of {}, Q8_0 holds at most 8.3e6",
                        of.source.data.describe(), amax);
    std::memcpy(place, &stored.bits, sizeof stored.bits);
    for (std::int64_t i = 0; i < gguf::kQ8Block; ++i) {
      const float code = std::round(integers ? x[i] / scale : x[i] * inverse);
      place[2 + i] = static_cast<std::byte>(static_cast<std::int8_t>(code));
      const double lost = double{x[i]} - double{code} * double{stored.to_float()};
      error.squared_error += lost * lost;
      error.squared_norm += double{x[i]} * double{x[i]};
    }
  }
  return chunk;
}

EncodedChunk Mxfp4Work::encode(const MatrixRows& of, const RowsMethod& /*method*/,
                               Buffers& buffers) const {
  const WeightSlice& slice = of.slice;
  const std::int64_t blocks = slice.cols / gguf::kMxBlock;
  const auto out = grow(buffers.codes, of.rows * blocks * gguf::kMxBlockBytes);
  const auto codes = grow(buffers.input, slice.cols / 2);
  const auto exponents = grow(buffers.strip, blocks);
  for (std::int64_t i = 0; i < of.rows; ++i) {
    const std::int64_t begin = slice.offset + (of.row + i) * slice.row_stride;
    of.source.data.read(begin / 2, codes);
    of.source.scales.read(begin / gguf::kMxBlock, exponents);
    const auto nan = std::ranges::find(exponents, std::byte{255}) - exponents.begin();
    require<ValueError>(nan == blocks, "{}: scale {} is NaN", of.source.scales.describe(),
                        begin / gguf::kMxBlock + nan);
    gguf::pack_mxfp4(codes, exponents, out.data() + i * blocks * gguf::kMxBlockBytes);
  }
  return {out, {}, {}};
}

}  // namespace nvfp4::checkpoint
