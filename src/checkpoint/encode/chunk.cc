#include "checkpoint/encode/chunk.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "checkpoint/io/grow.h"
#include "checkpoint/verify/fp8_codes.h"
#include "core/printable.h"
#include "core/require.h"
#include "quantizers/gptq.h"

namespace nvfp4::checkpoint {
namespace {

constexpr std::int64_t kChunkElements = 1 << 18;
/// Number of elements in a transposed chunk. It reads or writes a piece of each column, so wider
/// pieces need fewer calls. Codes are narrow.
constexpr std::int64_t kTransposedChunkElements = 1 << 20;

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
void read_rows_as(std::int64_t size, const LogicalTensor& t, const WeightSlice& slice,
                  std::int64_t row, std::int64_t rows, std::vector<std::byte>& strip,
                  std::span<std::byte> out) {
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

bool is_nan_code(const LogicalTensor& t, std::int64_t element) {
  std::byte code{};
  t.data.read(element, {&code, 1});
  return count_nan({&code, 1}) != 0;
}

/// Returns the number of NaN codes among those of these FP32 rows. A scale that is NaN or infinite
/// also makes NaN, so the codes are read for rows with NaN.
std::int64_t count_nan_codes(const LogicalTensor& t, const WeightSlice& slice, std::int64_t row,
                             std::int64_t rows, const float* values) {
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

DType read_dtype(const LogicalTensor& tensor) {
  return tensor.is_stored() ? matrix_dtype(tensor.data.info->dtype) : DType::f32;
}

std::int64_t rows_per_chunk(const Unit& unit) {
  const bool moves = unit.slice.col_stride != 1 && unit.work == Work::move;
  const std::int64_t elements = moves || unit.stack_rows > 0 ? 4 * kTransposedChunkElements
                                : unit.slice.col_stride != 1 ? kTransposedChunkElements
                                                             : kChunkElements;
  return std::clamp<std::int64_t>(round_up(elements / unit.out_cols(), unit.row_multiple),
                                  std::min(unit.row_multiple, unit.slice.rows), unit.slice.rows);
}

std::int64_t elements_per_measure(const LogicalTensor& tensor) {
  return (std::int64_t{1} << 20) * 8 /
         (tensor.is_plain() ? safetensors::dtype_bits(tensor.data.info->dtype) : 32);
}

AmaxResult measure_chunk(const LogicalTensor& tensor, std::int64_t begin, std::int64_t count,
                         const Backend& backend, Buffers& buffers) {
  return measure_chunk(tensor, begin, count, backend,
                       grow(buffers.input, count * element_bytes(tensor)));
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
              "{}: {}; nvfp4 verify lists all, --allow broken-scales with --ignore takes the "
              "values as they are",
              is_nan_code(tensor, begin + i) ? kCodeNan : "scale-nan", what),
          ErrorCode::faulty_values);
    throw ValueError(what + "; --ignore keeps a tensor as it is", ErrorCode::not_finite);
  }
  throw IoError(fmt::format("{}: {} changed while it was read", file, printable(tensor.name)),
                ErrorCode::input_changed);
}

void read_rows(const LogicalTensor& t, const WeightSlice& slice, std::int64_t row,
               std::int64_t rows, std::vector<std::byte>& strip, std::span<std::byte> out) {
  read_rows_as(element_bytes(t), t, slice, row, rows, strip, out);
}

void read_floats(const LogicalTensor& t, const WeightSlice& slice, std::int64_t row,
                 std::int64_t rows, std::vector<std::byte>& strip, std::span<std::byte> out) {
  read_rows_as(sizeof(float), t, slice, row, rows, strip, out);
}

EncodedChunk encode_chunk(const LogicalTensor& tensor, const WeightSlice& slice, std::int64_t row,
                          std::int64_t rows, const RowsMethod& method, Buffers& buffers) {
  const bool by_gram = method.gram != nullptr;
  const DType dtype = by_gram ? DType::f32 : read_dtype(tensor);
  const auto input = grow(buffers.input, rows * slice.cols * dtype_size(dtype));
  (by_gram ? read_floats : read_rows)(tensor, slice, row, rows, buffers.strip, input);
  const MatrixView x(input.data(), dtype, rows, slice.cols);
  const QuantizedShape shape{.rows = rows, .cols = slice.cols};
  const auto codes = grow(buffers.codes, shape.code_bytes());
  const auto scales = grow(buffers.scales, shape.scale_bytes());
  const auto bytes = [](std::byte* p) { return reinterpret_cast<std::uint8_t*>(p); };
  float global = 0;
  const QuantizedSpan out(shape, bytes(codes.data()), bytes(scales.data()), &global);
  RowsRoom room{.channels = method.channels()};
  std::vector<std::uint8_t> chosen;
  std::vector<double> errors;
  if (by_gram) {
    room.mse_codes = bytes(grow(buffers.strip, shape.code_bytes() + shape.scale_bytes()).data());
    room.mse_scales = room.mse_codes + shape.code_bytes();
    chosen.resize(static_cast<std::size_t>(rows));
    errors.resize(chosen.size() * kGptqCandidates);
    room.chosen = chosen.data();
    room.errors = errors.data();
  }
  quantize_rows(x, out, method, room);
  EncodedChunk chunk{codes, scales, {quantization_error(x, out, method.backend)}};
  if (by_gram)
    add_candidates(chosen, errors.data(), method.gram->factor, method.global, chunk.outcome);
  return chunk;
}

EncodedChunk decode_chunk(const Plan& plan, const Unit& unit, std::int64_t row, std::int64_t rows,
                          safetensors::DType dtype, Buffers& buffers) {
  constexpr std::int64_t kFloat = sizeof(float);
  const std::int64_t cols = unit.slice.cols, width = unit.out_cols(), parts = width / cols;
  const auto input = grow(buffers.input, rows * width * kFloat);
  const auto part_bytes = static_cast<std::size_t>(rows * cols * kFloat);
  const auto source = [&](std::int64_t part) -> const LogicalTensor& {
    return *plan.tensors[part == 0 ? unit.tensor : unit.second].source;
  };
  for (std::int64_t p = 0; p < parts; ++p)
    read_rows_as(kFloat, source(p), unit.slice, row, rows, buffers.strip,
                 input.subspan(static_cast<std::size_t>(p) * part_bytes, part_bytes));
  const auto* value = reinterpret_cast<const float*>(input.data());
  std::int64_t nan = 0;
  for (std::int64_t p = 0; p < parts; ++p)
    if (source(p).encoding() == Encoding::fp8)
      nan += count_nan_codes(source(p), unit.slice, row, rows, value + p * rows * cols);
  if (dtype == safetensors::DType::f32 && parts == 1) return {input, {}, {}, nan};
  const auto out = grow(buffers.codes, rows * width * 2);
  auto* const bits = reinterpret_cast<std::uint16_t*>(out.data());
  const bool bf16 = dtype == safetensors::DType::bf16;
  const int infinity = bf16 ? 0x7F80 : 0x7C00;
  const std::int64_t step = unit.interleaved ? parts : 1;
  for (std::int64_t p = 0; p < parts; ++p)
    for (std::int64_t r = 0; r < rows; ++r)
      for (std::int64_t c = 0; c < cols; ++c, ++value) {
        std::uint16_t& to = bits[r * width + p * (unit.interleaved ? 1 : cols) + c * step];
        to = bf16 ? BF16::from_float(*value).bits : FP16::from_float(*value).bits;
        if ((to & 0x7FFF) == infinity && std::isfinite(*value))
          throw ValueError(fmt::format(
              "{}: {} has a weight of {}, {} holds at most {}",
              source(p).data.file->path().string(), printable(source(p).name), *value,
              safetensors::dtype_name(dtype), bf16 ? "3.39e38" : "65504; --to bf16 holds more"));
      }
  return {out, {}, {}, nan};
}

}  // namespace nvfp4::checkpoint
