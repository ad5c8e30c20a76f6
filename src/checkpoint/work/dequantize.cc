#include <cmath>

#include "checkpoint/io/grow.h"
#include "checkpoint/verify/codes.h"
#include "checkpoint/work/work.h"
#include "core/printable.h"
#include "core/require.h"

namespace nvfp4::checkpoint {
namespace {

/// Returns the number of NaN codes among those of these FP32 rows. A scale that is NaN or infinite
/// also makes NaN, so the codes are read for rows with NaN.
std::int64_t count_nan_codes(const MatrixRows& of, const float* values) {
  const auto& [t, slice, row, rows, second] = of;
  std::vector<std::byte> codes(static_cast<std::size_t>(slice.cols));
  std::int64_t found = 0;
  for (std::int64_t r = 0; r < rows; ++r, values += slice.cols) {
    if (count_nan({values, codes.size()}) == 0) continue;
    const std::int64_t begin = slice.offset + (row + r) * slice.row_stride;
    if (slice.col_stride == 1) {
      t.data.read(begin, codes);
      found += count_nan(codes);
      continue;
    }
    for (std::int64_t c = 0; c < slice.cols; ++c)
      found += std::isnan(values[c]) && is_nan_code(t, begin + c * slice.col_stride);
  }
  return found;
}

}  // namespace

EncodedChunk DequantizeWork::encode(const MatrixRows& of, const RowsMethod& /*method*/,
                                    Buffers& buffers) const {
  const std::int64_t rows = of.rows, cols = of.slice.cols, parts = output_.pairs ? 2 : 1;
  const auto bytes = static_cast<std::size_t>(rows * cols) * sizeof(float);
  const auto input = grow(buffers.input, parts * static_cast<std::int64_t>(bytes));
  const auto* value = reinterpret_cast<const float*>(input.data());
  const auto source = [&](std::int64_t part) -> const LogicalTensor& {
    return part == 0 ? of.source : *of.second;
  };
  std::int64_t nan = 0;
  for (std::int64_t p = 0; p < parts; ++p) {
    const MatrixRows part{source(p), of.slice, of.row, rows};
    read_floats(part, buffers.strip, input.subspan(static_cast<std::size_t>(p) * bytes, bytes));
    if (source(p).encoding() == Encoding::fp8)
      nan += count_nan_codes(part, value + p * rows * cols);
  }
  const safetensors::DType dtype = output_.dtype;
  if (dtype == safetensors::DType::f32 && parts == 1) return {input, {}, {}, nan};
  const auto out = grow(buffers.codes, rows * parts * cols * 2);
  auto* const bits = reinterpret_cast<std::uint16_t*>(out.data());
  const bool bf16 = dtype == safetensors::DType::bf16;
  const int infinity = bf16 ? 0x7F80 : 0x7C00;
  const std::int64_t step = output_.interleaved ? parts : 1;
  for (std::int64_t p = 0; p < parts; ++p)
    for (std::int64_t r = 0; r < rows; ++r)
      for (std::int64_t c = 0; c < cols; ++c, ++value) {
        std::uint16_t& to =
            bits[r * parts * cols + p * (output_.interleaved ? 1 : cols) + c * step];
        to = bf16 ? BF16::from_float(*value).bits : FP16::from_float(*value).bits;
        if ((to & 0x7FFF) == infinity && std::isfinite(*value))
          throw ValueError(fmt::format("{}: {} has a weight of {}, {} holds at most {}",
                                       source(p).data.file->path().string(),
                                       printable(source(p).name), *value,
                                       safetensors::dtype_name(dtype),
                                       bf16 ? "3.39e38" : "65504; hint: --to bf16 holds more"));
      }
  return {out, {}, {}, nan};
}

}  // namespace nvfp4::checkpoint
