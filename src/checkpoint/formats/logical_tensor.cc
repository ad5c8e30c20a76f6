#include "checkpoint/formats/logical_tensor.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "checkpoint/io/grow.h"
#include "core/require.h"

namespace nvfp4::checkpoint {
namespace {

using StoredType = safetensors::DType;

float element_to_float(StoredType dtype, const std::byte* p) {
  const auto as = [p]<class T>(T value) {
    std::memcpy(&value, p, sizeof value);
    return value;
  };
  switch (dtype) {
    case StoredType::boolean:
    case StoredType::u8:
      return static_cast<float>(as(std::uint8_t{}));
    case StoredType::i8:
      return static_cast<float>(as(std::int8_t{}));
    case StoredType::f8_e5m2:  // the upper half of an FP16
      return FP16{static_cast<std::uint16_t>(as(std::uint8_t{}) << 8)}.to_float();
    case StoredType::f8_e4m3:
      return E4M3{as(std::uint8_t{})}.to_float();
    case StoredType::f8_e8m0: {
      const int exponent = as(std::uint8_t{});
      return exponent == 255 ? std::nanf("") : std::ldexp(1.0f, exponent - 127);
    }
    case StoredType::i16:
      return static_cast<float>(as(std::int16_t{}));
    case StoredType::u16:
      return static_cast<float>(as(std::uint16_t{}));
    case StoredType::f16:
      return FP16{as(std::uint16_t{})}.to_float();
    case StoredType::bf16:
      return BF16{as(std::uint16_t{})}.to_float();
    case StoredType::i32:
      return static_cast<float>(as(std::int32_t{}));
    case StoredType::u32:
      return static_cast<float>(as(std::uint32_t{}));
    case StoredType::f32:
      return as(float{});
    case StoredType::f64:
      return static_cast<float>(as(double{}));
    case StoredType::i64:
      return static_cast<float>(as(std::int64_t{}));
    case StoredType::u64:
      return static_cast<float>(as(std::uint64_t{}));
    default:
      break;
  }
  throw UnsupportedError(fmt::format("elements of dtype {} cannot be read as numbers",
                                     safetensors::dtype_name(dtype)));
}

/// Returns a table with the value of each code of an element type.
template <class Element, std::size_t n>
const std::array<float, n>& values_of() {
  static const std::array<float, n> values = [] {
    std::array<float, n> table;
    for (std::size_t i = 0; i < n; ++i) table[i] = Element{static_cast<std::uint8_t>(i)}.to_float();
    return table;
  }();
  return values;
}

void read_nvfp4(const LogicalTensor& t, std::int64_t first, std::span<float> out) {
  thread_local std::vector<std::byte> codes, scales;
  const std::int64_t matrix = t.elements() / static_cast<std::int64_t>(t.globals.size());
  while (!out.empty()) {  // a row-major run of blocks inside one matrix is itself a one-row matrix
    const std::int64_t left = matrix - first % matrix;
    const std::int64_t n = std::min<std::int64_t>(left, static_cast<std::int64_t>(out.size()));
    const auto code_bytes = grow(codes, n / 2), scale_bytes = grow(scales, n / kBlock);
    t.read_blocks(first / kBlock, code_bytes, scale_bytes);
    const QuantizedView view({.rows = 1, .cols = n},
                             reinterpret_cast<const std::uint8_t*>(code_bytes.data()),
                             reinterpret_cast<const std::uint8_t*>(scale_bytes.data()),
                             &t.globals[static_cast<std::size_t>(first / matrix)].multiplier);
    dequantize_into(view, {out.data(), DType::f32, 1, n});
    out = out.subspan(static_cast<std::size_t>(n));
    first += n;
  }
}

/// Reads elements of a transposed stack. A run stays in one row of K, so all its codes are low or
/// all are high nibbles.
void read_transposed(const LogicalTensor& t, std::int64_t first, std::span<float> out) {
  thread_local std::vector<std::byte> codes, scales;
  const auto& code_values = values_of<E2M1, 16>();
  const auto& scale_values = values_of<E4M3, 256>();
  const std::int64_t width = t.cols(), matrix = t.rows() * width;
  while (!out.empty()) {
    const std::int64_t k = first / width, col = first % width;  // k over all experts
    const auto n = std::min<std::int64_t>(width - col, static_cast<std::int64_t>(out.size()));
    const auto pairs = grow(codes, n), scale_bits = grow(scales, n);
    t.data.read(k / 2 * width + col, pairs);
    t.scales.read(k / kBlock * width + col, scale_bits);
    const bool high = (k % 2 != 0) != t.names->arrangement.high_nibble_first;
    const float global = scale_of(t.globals, first / matrix).multiplier;
    for (std::size_t i = 0; i < static_cast<std::size_t>(n); ++i) {
      const auto pair = std::to_integer<std::size_t>(pairs[i]);
      const float scale = scale_values[std::to_integer<std::size_t>(scale_bits[i])];
      out[i] = code_values[high ? pair >> 4 : pair & 15] * scale * global;
    }
    out = out.subspan(static_cast<std::size_t>(n));
    first += n;
  }
}

/// Transposes columns [col, col + cols) of a matrix of bytes: out[n, k] = byte [k, col + n]. The
/// matrix has `height` rows of `width` bytes and starts at byte `begin`; n < cols, k < height.
void read_columns(const StoredTensor& from, std::int64_t begin, std::int64_t height,
                  std::int64_t width, std::int64_t col, std::int64_t cols,
                  std::span<std::byte> out) {
  thread_local std::vector<std::byte> buffer;
  constexpr std::int64_t kBand = 64;  // rows per step: a cache line of the output
  for (std::int64_t k0 = 0; k0 < height; k0 += kBand) {
    const std::int64_t band = std::min(kBand, height - k0);
    const auto bytes = grow(buffer, band * cols);
    if (cols == width) {
      from.read(begin + k0 * width, bytes);
    } else {
      for (std::int64_t k = 0; k < band; ++k)
        from.read(begin + (k0 + k) * width + col, bytes.subspan(static_cast<std::size_t>(k * cols),
                                                                static_cast<std::size_t>(cols)));
    }
    for (std::int64_t n = 0; n < cols; ++n)
      for (std::int64_t k = 0; k < band; ++k)
        out[static_cast<std::size_t>(n * height + k0 + k)] =
            bytes[static_cast<std::size_t>(k * cols + n)];
  }
}

void read_transposed_blocks(const LogicalTensor& t, std::int64_t first, std::span<std::byte> codes,
                            std::span<std::byte> scales) {
  const std::int64_t width = t.outputs(), row_blocks = t.depth() / kBlock;
  const auto count = static_cast<std::int64_t>(scales.size());
  for (std::int64_t done = 0; done < count;) {
    const std::int64_t row = (first + done) / row_blocks, inside = row % width;
    const std::int64_t rows = std::min(width - inside, (count - done) / row_blocks);
    const auto part = [&](std::span<std::byte> all, std::int64_t bytes) {
      return all.subspan(static_cast<std::size_t>(done * bytes),
                         static_cast<std::size_t>(rows * row_blocks * bytes));
    };
    const std::int64_t begin = row / width * row_blocks * width;  // first scale of this expert
    read_columns(t.scales, begin, row_blocks, width, inside, rows, part(scales, 1));
    if (!codes.empty())
      read_columns(t.data, begin * 8, row_blocks * 8, width, inside, rows, part(codes, 8));
    done += rows * row_blocks;
  }
}

/// Reads MXFP4: E2M1 times a power of two. The result is exact; only the smallest exponents round
/// once.
void read_mxfp4(const LogicalTensor& t, std::int64_t first, std::span<float> out) {
  constexpr std::int64_t kMxBlock = 32;
  thread_local std::vector<std::byte> codes, scales;
  const auto n = static_cast<std::int64_t>(out.size());
  const std::int64_t first_block = first / kMxBlock,
                     blocks = (first + n - 1) / kMxBlock + 1 - first_block;
  const auto code_bytes = grow(codes, n / 2), scale_bytes = grow(scales, blocks);
  t.data.read(first / 2, code_bytes);
  t.scales.read(first_block, scale_bytes);
  for (std::int64_t i = 0; i < n; i += 2) {
    const float scale = element_to_float(
        StoredType::f8_e8m0,
        &scale_bytes[static_cast<std::size_t>((first + i) / kMxBlock - first_block)]);
    const auto pair = std::to_integer<std::uint8_t>(code_bytes[static_cast<std::size_t>(i / 2)]);
    out[static_cast<std::size_t>(i)] =
        E2M1{static_cast<std::uint8_t>(pair & 15)}.to_float() * scale;
    out[static_cast<std::size_t>(i + 1)] =
        E2M1{static_cast<std::uint8_t>(pair >> 4)}.to_float() * scale;
  }
}

/// The number of a code of INT8.
struct Int8 {
  std::uint8_t bits;
  float to_float() const { return static_cast<float>(static_cast<std::int8_t>(bits)); }
};

/// Reads FP8 or INT8: E4M3 or an integer times its scale in FP32, with one rounding.
void read_eight_bits(const LogicalTensor& t, std::int64_t first, std::span<float> out) {
  const auto& values =
      t.encoding() == Encoding::int8 ? values_of<Int8, 256>() : values_of<E4M3, 256>();
  thread_local std::vector<std::byte> codes, scale_bytes;
  thread_local std::vector<float> scales;
  const auto n = static_cast<std::int64_t>(out.size());
  const std::int64_t cols = t.cols(), scale_cols = ceil_div(cols, t.block_cols);
  const std::int64_t low = first / cols / t.block_rows,
                     high = (first + n - 1) / cols / t.block_rows;
  const int scale_size = safetensors::dtype_bits(t.scales.info->dtype) / 8;
  const std::int64_t count = (high - low + 1) * scale_cols;
  const auto raw = grow(scale_bytes, count * scale_size);
  t.scales.read(low * scale_cols * scale_size, raw);
  scales.resize(static_cast<std::size_t>(count));
  to_floats(t.is_mxfp8() ? StoredType::f8_e8m0 : t.scales.info->dtype, raw, scales);
  const auto bytes = grow(codes, n);
  t.data.read(first, bytes);
  for (std::int64_t i = 0; i < n;) {  // a run of elements with one scale
    const std::int64_t row = (first + i) / cols, col = (first + i) % cols;
    const std::int64_t end = std::min({n, i + cols - col, i + t.block_cols - col % t.block_cols});
    const float scale = scales[static_cast<std::size_t>((row / t.block_rows - low) * scale_cols +
                                                        col / t.block_cols)];
    for (; i < end; ++i) {
      const auto at = static_cast<std::size_t>(i);
      out[at] = values[std::to_integer<std::uint8_t>(bytes[at])] * scale;
    }
  }
}

/// Reads the scales of blocks [first, first + out.size()) from tiles, which hold 128 rows each.
void read_tiled_scales(const LogicalTensor& t, std::int64_t first, std::span<std::byte> out) {
  thread_local std::vector<std::byte> tiles;
  const std::int64_t rows = t.rows(), row_blocks = t.cols() / kBlock;
  const std::int64_t matrix_blocks = rows * row_blocks;
  const ScaleLayout layout = t.names->arrangement.scales;
  for (std::size_t done = 0; done < out.size();) {
    const std::int64_t block = first + static_cast<std::int64_t>(done);
    const std::int64_t matrix = block / matrix_blocks, inside = block % matrix_blocks;
    const std::int64_t n = std::min<std::int64_t>(matrix_blocks - inside,
                                                  static_cast<std::int64_t>(out.size() - done));
    const std::int64_t band = scale_bytes(layout, 128, row_blocks);
    const std::int64_t low = inside / row_blocks / 128, high = (inside + n - 1) / row_blocks / 128;
    const auto bytes = grow(tiles, (high - low + 1) * band);
    t.scales.read(matrix * scale_bytes(layout, rows, row_blocks) + low * band, bytes);
    for (std::int64_t i = inside; i < inside + n; ++i)
      out[done++] = bytes[static_cast<std::size_t>(
          scale_offset(layout, i / row_blocks, i % row_blocks, rows, row_blocks) - low * band)];
  }
}

void read_plain(const LogicalTensor& t, std::int64_t first, std::span<float> out) {
  thread_local std::vector<std::byte> buffer;
  const auto bytes = grow(buffer, static_cast<std::int64_t>(out.size()) *
                                      safetensors::dtype_bits(t.data.info->dtype) / 8);
  t.read_bytes(first, bytes);
  to_floats(t.data.info->dtype, bytes, out);
}

}  // namespace

void to_floats(StoredType dtype, std::span<const std::byte> in, std::span<float> out) {
  if (dtype == StoredType::bf16) {  // by far the most common dtype
    for (std::size_t i = 0; i < out.size(); ++i) {
      std::uint16_t bits;
      std::memcpy(&bits, in.data() + 2 * i, 2);
      out[i] = BF16{bits}.to_float();
    }
    return;
  }
  const auto size = static_cast<std::size_t>(safetensors::dtype_bits(dtype)) / 8;
  for (std::size_t i = 0; i < out.size(); ++i)
    out[i] = element_to_float(dtype, in.data() + i * size);
}

bool is_valid(const GlobalScale& scale) {
  const auto good = [](float x) { return std::isfinite(x) && x > 0; };
  return good(scale.multiplier) && good(scale.divisor);
}

const GlobalScale& scale_of(const std::vector<GlobalScale>& scales, std::int64_t index) {
  return scales[scales.size() == 1 ? 0 : static_cast<std::size_t>(index)];
}

std::optional<bool> orientation(const LogicalTensor& stack) {
  return stack.is_four_bits() ? std::optional(stack.transposed) : std::nullopt;
}

std::string LogicalTensor::form_name() const {
  switch (encoding()) {
    case Encoding::nvfp4:
      return "NVFP4";
    case Encoding::mxfp4:
      return "MXFP4";
    case Encoding::fp8:
      return is_mxfp8() ? "MXFP8" : "FP8";
    case Encoding::int8:
      return "INT8";
    case Encoding::int4:
      return "INT4";
    case Encoding::plain:
      break;
  }
  return std::string(safetensors::dtype_name(data.info->dtype));
}

std::string LogicalTensor::module() const {
  return name.ends_with(".weight") ? name.substr(0, name.size() - 7) : name;
}

bool LogicalTensor::is_bare_fp8() const {
  const StoredType dtype = data.info->dtype;
  return is_plain() && (dtype == StoredType::f8_e4m3 || dtype == StoredType::f8_e5m2) &&
         data.info->bytes > 0;
}

bool LogicalTensor::is_mxfp8() const {
  return encoding() == Encoding::fp8 && scales.info->dtype == StoredType::u8;
}

std::int64_t LogicalTensor::elements() const {
  std::int64_t n = 1;
  for (const std::int64_t d : shape) n *= d;
  return n;
}

std::optional<float> LogicalTensor::input_scale() const {
  if (inputs.empty()) return std::nullopt;
  float largest = inputs[0].multiplier;
  for (const GlobalScale& s : inputs)
    if (!(s.multiplier <= largest)) largest = s.multiplier;
  return largest;
}

std::optional<float> LogicalTensor::fp8_input_amax() const {
  if (encoding() != Encoding::fp8 || !input) return std::nullopt;
  const StoredType dtype = input.info->dtype;
  const auto size = static_cast<std::uint64_t>(safetensors::dtype_bits(dtype)) / 8;
  const bool number =
      dtype == StoredType::f32 || dtype == StoredType::bf16 || dtype == StoredType::f16;
  if (!number || input.info->bytes != size) return std::nullopt;
  std::array<std::byte, 4> bytes{};
  float scale = 0;
  input.read(0, std::span(bytes).first(size));
  to_floats(dtype, std::span(bytes).first(size), {&scale, 1});
  const float amax = scale * E4M3::kMax;
  return scale > 0 && std::isfinite(amax) ? std::optional(amax) : std::nullopt;
}

safetensors::TensorInfo LogicalTensor::plain_info() const {
  if (is_plain() && !is_bare_fp8()) return *data.info;
  return {name, StoredType::bf16, shape, 0, static_cast<std::uint64_t>(elements()) * 2};
}

bool LogicalTensor::readable() const {
  if (!is_plain()) return true;
  switch (data.info->dtype) {
    case StoredType::f4:
    case StoredType::f6_e2m3:
    case StoredType::f6_e3m2:
    case StoredType::f8_e4m3fnuz:
    case StoredType::f8_e5m2fnuz:
    case StoredType::c64:
      return false;
    default:
      return true;
  }
}

bool LogicalTensor::exact_as_float() const {
  const StoredType dtype = data.info->dtype;
  return !is_plain() || dtype == StoredType::f32 || safetensors::dtype_bits(dtype) < 32;
}

void LogicalTensor::read_bytes(std::int64_t first, std::span<std::byte> out) const {
  const auto bits = static_cast<std::uint64_t>(safetensors::dtype_bits(data.info->dtype));
  data.file->read(*data.info, static_cast<std::uint64_t>(first) * bits / 8, out);
}

void LogicalTensor::read_blocks(std::int64_t first, std::span<std::byte> codes,
                                std::span<std::byte> scale_out) const {
  if (transposed) {
    read_transposed_blocks(*this, first, codes, scale_out);
  } else {
    data.read(first * (kBlock / 2), codes);
    if (names->arrangement.scales == ScaleLayout::linear)
      scales.read(first, scale_out);
    else
      read_tiled_scales(*this, first, scale_out);
  }
  if (names->arrangement.high_nibble_first)
    for (std::byte& b : codes) b = b << 4 | b >> 4;
}

void LogicalTensor::read(std::int64_t first, std::span<float> out) const {
  if (out.empty()) return;
  switch (encoding()) {
    case Encoding::nvfp4:
      return transposed ? read_transposed(*this, first, out) : read_nvfp4(*this, first, out);
    case Encoding::mxfp4:
      return read_mxfp4(*this, first, out);
    case Encoding::fp8:
    case Encoding::int8:
      read_eight_bits(*this, first, out);
      break;
    case Encoding::int4:
      read_int4(*this, first, out);
      break;
    case Encoding::plain:
      read_plain(*this, first, out);
      break;
  }
  for (const auto& low_rank : added) low_rank->add_to(first, out);
}

void LowRank::add_to(std::int64_t first, std::span<float> out) const {
  constexpr std::int64_t kStrip = 1024;
  float sums[kStrip];
  for (std::int64_t at = 0; at < static_cast<std::int64_t>(out.size());) {
    const std::int64_t row = (first + at) / cols, col = (first + at) % cols,
                       n = std::min(
                           {kStrip, cols - col, static_cast<std::int64_t>(out.size()) - at});
    std::fill_n(sums, n, 0.0f);
    for (std::int64_t k = 0; k < rank; ++k) {
      const float factor = b[static_cast<std::size_t>(row * rank + k)];
      const float* const from = a.data() + k * cols + col;
      for (std::int64_t i = 0; i < n; ++i) sums[i] += factor * from[i];
    }
    float* const to = out.data() + at;
    for (std::int64_t i = 0; i < n; ++i) to[i] += sums[i];
    at += n;
  }
}

}  // namespace nvfp4::checkpoint
