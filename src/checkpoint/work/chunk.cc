#include "checkpoint/work/chunk.h"

#include <algorithm>
#include <cmath>

#include "checkpoint/families/select.h"
#include "checkpoint/io/grow.h"
#include "checkpoint/verify/codes.h"
#include "core/printable.h"
#include "core/require.h"

namespace nvfp4::checkpoint {
namespace {

std::int64_t element_bytes(const LogicalTensor& t) { return dtype_size(read_dtype(t)); }

/// Reads elements from `begin` on. With `size` = 4 they are FP32, otherwise they have the read
/// dtype.
void read_elements(const LogicalTensor& t, std::int64_t begin, std::span<std::byte> out,
                   std::int64_t size) {
  if (t.is_stored() && size == element_bytes(t)) return t.read_bytes(begin, out);
  t.read(begin, {reinterpret_cast<float*>(out.data()), out.size() / sizeof(float)});
}

/// Writes out[n, k] = in[k, n * step] in tiles, so that both sides stay in the cache.
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

/// Reads rows as read_rows() does, with elements of `size` bytes.
void read_rows_as(std::int64_t size, const MatrixRows& of, std::vector<std::byte>& strip,
                  std::span<std::byte> out) {
  const auto& [t, slice, row, rows, second] = of;
  const std::int64_t begin = slice.offset + row * slice.row_stride;
  if (slice.col_stride == 1 && slice.row_stride == slice.cols)
    return read_elements(t, begin, out, size);
  const auto part = [](std::span<std::byte> all, std::int64_t i, std::int64_t bytes) {
    return all.subspan(static_cast<std::size_t>(i * bytes), static_cast<std::size_t>(bytes));
  };
  if (slice.col_stride == 1) {
    for (std::int64_t i = 0; i < rows; ++i)
      read_elements(t, begin + i * slice.row_stride, part(out, i, slice.cols * size), size);
    return;
  }
  const std::int64_t width = (rows - 1) * slice.row_stride + 1;
  const auto columns = grow(strip, width * slice.cols * size);
  for (std::int64_t k = 0; k < slice.cols; ++k)
    read_elements(t, begin + k * slice.col_stride, part(columns, k, width * size), size);
  if (size == 4)
    transpose(reinterpret_cast<const std::uint32_t*>(strip.data()), width, slice.row_stride, rows,
              slice.cols, reinterpret_cast<std::uint32_t*>(out.data()));
  else
    transpose(reinterpret_cast<const std::uint16_t*>(strip.data()), width, slice.row_stride, rows,
              slice.cols, reinterpret_cast<std::uint16_t*>(out.data()));
}

}  // namespace

DType read_dtype(const LogicalTensor& tensor) {
  return tensor.is_stored() ? matrix_dtype(tensor.data.info->dtype) : DType::f32;
}

std::int64_t elements_per_measure(const LogicalTensor& tensor) {
  return (std::int64_t{1} << 20) * 8 /
         (tensor.is_plain() ? safetensors::dtype_bits(tensor.data.info->dtype) : 32);
}

AmaxResult measure_chunk(const LogicalTensor& tensor, std::int64_t begin, std::int64_t count,
                         const Backend& backend, std::span<std::byte> bytes) {
  read_elements(tensor, begin, bytes, element_bytes(tensor));
  return backend.amax({bytes.data(), read_dtype(tensor), 1, count}, 0, 1);
}

void throw_non_finite(const LogicalTensor& tensor, std::int64_t begin, std::int64_t count) {
  std::vector<std::byte> buffer;
  const auto bytes = grow(buffer, count * element_bytes(tensor));
  read_elements(tensor, begin, bytes, element_bytes(tensor));
  const MatrixView x(bytes.data(), read_dtype(tensor), 1, count);
  const std::string file = tensor.data.file->path().string();
  for (std::int64_t i = 0; i < count; ++i) {
    const float value = x.at(0, i);
    if (std::isfinite(value)) continue;
    std::string index;
    std::int64_t rest = begin + i;
    for (std::size_t d = tensor.shape.size(); d-- > 0; rest /= tensor.shape[d])
      index = fmt::format("{}{}{}", rest % tensor.shape[d], index.empty() ? "" : ", ", index);
    const std::string what =
        fmt::format("{}: {}[{}] = {}, must be finite", file, printable(tensor.name), index, value);
    if (tensor.encoding() == Encoding::fp8 && std::isnan(value))
      throw FormatError(
          fmt::format(
              "{}: {}; hint: nvfp4 verify lists all, --allow broken-scales with --ignore takes the "
              "values as they are",
              is_nan_code(tensor, begin + i) ? kCodeNan : "scale-nan", what),
          ErrorCode::faulty_values);
    throw ValueError(what + "; hint: --ignore excludes a tensor", ErrorCode::not_finite);
  }
  throw IoError(fmt::format("{}: {} changed while it was read", file, printable(tensor.name)),
                ErrorCode::input_changed);
}

void read_rows(const MatrixRows& rows, std::vector<std::byte>& strip, std::span<std::byte> out) {
  read_rows_as(element_bytes(rows.source), rows, strip, out);
}

void read_floats(const MatrixRows& rows, std::vector<std::byte>& strip, std::span<std::byte> out) {
  read_rows_as(sizeof(float), rows, strip, out);
}

bool is_nan_code(const LogicalTensor& t, std::int64_t element) {
  std::byte code{};
  t.data.read(element, {&code, 1});
  return count_nan({&code, 1}) != 0;
}

}  // namespace nvfp4::checkpoint
