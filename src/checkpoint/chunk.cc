#include "checkpoint/chunk.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "checkpoint/printable.h"
#include "core/require.h"

namespace nvfp4::checkpoint {
namespace {

using safetensors::File;
using safetensors::TensorInfo;

constexpr std::int64_t kChunkElements = 1 << 18;
/// A transposed chunk reads a piece of each column: wider pieces, fewer reads.
constexpr std::int64_t kTransposedChunkElements = 1 << 20;

std::int64_t element_bytes(const TensorInfo& t) { return safetensors::dtype_bits(t.dtype) / 8; }

/// Elements [begin, begin + count) of the tensor.
std::span<const std::byte> read_elements(const File& file, const TensorInfo& t, std::int64_t begin,
                                         std::int64_t count, std::vector<std::byte>& buffer) {
  const std::int64_t size = element_bytes(t);
  const auto bytes = static_cast<std::size_t>(count * size);
  if (buffer.size() < bytes) buffer.resize(bytes);
  const std::span<std::byte> out(buffer.data(), bytes);
  file.read(t, static_cast<std::uint64_t>(begin * size), out);
  return out;
}

/// out[n, k] = in[k, n * step], a tile at a time so that both sides stay in the cache.
template <class T>
void transpose(const T* in, std::int64_t in_width, std::int64_t step, std::int64_t rows,
               std::int64_t cols, T* out) {
  constexpr std::int64_t kTile = 32;
  for (std::int64_t k0 = 0; k0 < cols; k0 += kTile)
    for (std::int64_t n0 = 0; n0 < rows; n0 += kTile)
      for (std::int64_t n = n0; n < std::min(n0 + kTile, rows); ++n)
        for (std::int64_t k = k0; k < std::min(k0 + kTile, cols); ++k)
          out[n * cols + k] = in[k * in_width + n * step];
}

}  // namespace

std::int64_t rows_per_chunk(const Unit& unit) {
  const std::int64_t elements =
      unit.slice.col_stride == 1 ? kChunkElements : kTransposedChunkElements;
  return std::clamp<std::int64_t>(elements / unit.slice.cols, 1, unit.slice.rows);
}

std::int64_t elements_per_measure(safetensors::DType dtype) {
  return (std::int64_t{1} << 20) * 8 / safetensors::dtype_bits(dtype);
}

AmaxResult measure_chunk(const File& file, const TensorInfo& tensor, std::int64_t begin,
                         std::int64_t count, const Backend& backend, Buffers& buffers) {
  const auto bytes = read_elements(file, tensor, begin, count, buffers.input);
  return backend.amax({bytes.data(), matrix_dtype(tensor.dtype), 1, count}, 0, 1);
}

void throw_non_finite(const File& file, const TensorInfo& tensor, std::int64_t begin,
                      std::int64_t count) {
  std::vector<std::byte> buffer;
  const auto bytes = read_elements(file, tensor, begin, count, buffer);
  const MatrixView x(bytes.data(), matrix_dtype(tensor.dtype), 1, count);
  for (std::int64_t i = 0; i < count; ++i) {
    const float value = x.at(0, i);
    if (std::isfinite(value)) continue;
    std::string index;
    std::int64_t rest = begin + i;
    for (std::size_t d = tensor.shape.size(); d-- > 0; rest /= tensor.shape[d])
      index = fmt::format("{}{}{}", rest % tensor.shape[d], index.empty() ? "" : ", ", index);
    throw ValueError(
        fmt::format("{}: {}[{}] = {}, must be finite; --ignore keeps a tensor as it is",
                    file.path().string(), printable(tensor.name), index, value));
  }
  throw IoError(fmt::format("{}: {} changed while it was read", file.path().string(),
                            printable(tensor.name)));
}

void read_rows(const File& file, const TensorInfo& t, const WeightSlice& slice, std::int64_t row,
               std::int64_t rows, std::vector<std::byte>& strip, std::span<std::byte> out) {
  const std::int64_t begin = slice.offset + row * slice.row_stride, size = element_bytes(t);
  if (slice.col_stride == 1) return file.read(t, static_cast<std::uint64_t>(begin * size), out);

  const std::int64_t width = (rows - 1) * slice.row_stride + 1;
  const auto strip_bytes = static_cast<std::size_t>(width * slice.cols * size);
  if (strip.size() < strip_bytes) strip.resize(strip_bytes);
  for (std::int64_t k = 0; k < slice.cols; ++k)
    file.read(t, static_cast<std::uint64_t>((begin + k * slice.col_stride) * size),
              std::span(strip).subspan(static_cast<std::size_t>(k * width * size),
                                       static_cast<std::size_t>(width * size)));
  if (size == 4)
    transpose(reinterpret_cast<const std::uint32_t*>(strip.data()), width, slice.row_stride, rows,
              slice.cols, reinterpret_cast<std::uint32_t*>(out.data()));
  else
    transpose(reinterpret_cast<const std::uint16_t*>(strip.data()), width, slice.row_stride, rows,
              slice.cols, reinterpret_cast<std::uint16_t*>(out.data()));
}

EncodedChunk encode_chunk(const File& file, const TensorInfo& tensor, const WeightSlice& slice,
                          std::int64_t row, std::int64_t rows, const QuantizeOptions& options,
                          Buffers& buffers) {
  const auto input_bytes = static_cast<std::size_t>(rows * slice.cols * element_bytes(tensor));
  if (buffers.input.size() < input_bytes) buffers.input.resize(input_bytes);
  read_rows(file, tensor, slice, row, rows, buffers.strip,
            std::span(buffers.input).first(input_bytes));
  const MatrixView x(buffers.input.data(), matrix_dtype(tensor.dtype), rows, slice.cols);
  const QuantizedShape shape{.rows = rows, .cols = slice.cols};
  const auto code_bytes = static_cast<std::size_t>(shape.code_bytes());
  const auto scale_bytes = static_cast<std::size_t>(shape.scale_bytes());
  if (buffers.codes.size() < code_bytes) buffers.codes.resize(code_bytes);
  if (buffers.scales.size() < scale_bytes) buffers.scales.resize(scale_bytes);
  float global = 0;
  const QuantizedSpan out(shape, reinterpret_cast<std::uint8_t*>(buffers.codes.data()),
                          reinterpret_cast<std::uint8_t*>(buffers.scales.data()), &global);
  quantize_into(x, out, options);
  return {{buffers.codes.data(), code_bytes},
          {buffers.scales.data(), scale_bytes},
          quantization_error(x, out, options.backend)};
}

}  // namespace nvfp4::checkpoint
