#include <array>
#include <cmath>
#include <cstring>

#include "checkpoint/io/grow.h"
#include "checkpoint/work/work.h"
#include "core/require.h"

namespace nvfp4::checkpoint {
namespace {

/// Returns the element of `scales` for a slice of `t`. A stack has one scale, or one for each
/// matrix.
const GlobalScale& scale_of_slice(const std::vector<GlobalScale>& scales, const LogicalTensor& t,
                                  const WeightSlice& slice) {
  return scale_of(scales, scales.size() == 1 ? 0 : slice.offset / (t.rows() * t.cols()));
}

/// Throws ValueError unless the scale is finite and positive.
void require_usable(const StoredTensor& stored, const GlobalScale& scale) {
  require<ValueError>(is_valid(scale),
                      "{} = {} (as a multiplier), must be > 0 and finite, and so its reciprocal; "
                      "hint: nvfp4 verify says more",
                      stored.describe(), scale.multiplier);
}

/// Reads the codes and scales of rows.
void read_blocks(const MatrixRows& of, std::span<std::byte> codes, std::span<std::byte> scales,
                 Buffers& buffers) {
  const auto& [t, slice, row, rows, second] = of;
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

GlobalScale CopyWork::global_of(const LogicalTensor& t, const WeightSlice& slice) {
  const StoredTensor& stored = t.global ? t.global : t.data;  // some forms have none
  require<UnsupportedError>(
      static_cast<std::int64_t>(t.globals.size()) <= t.matrices(),
      "{}: {} global scales, one for each row, which no format written here has", stored.describe(),
      t.globals.size());
  const GlobalScale global = t.correction.global.value_or(scale_of_slice(t.globals, t, slice));
  require_usable(stored, global);
  return global;
}

bool CopyWork::is_exact_without_global(const LogicalTensor& t, const WeightSlice& slice) {
  const float global = global_of(t, slice).multiplier;
  int exponent = 0;
  if (global == 1) return true;
  if (std::frexp(global, &exponent) != 0.5f) return false;
  std::array<bool, 128> seen{};
  Buffers buffers;
  const std::int64_t rows = std::max<std::int64_t>(1, (1 << 20) / slice.cols);
  for (std::int64_t row = 0; row < slice.rows; row += rows) {
    const MatrixRows part{t, slice, row, std::min(rows, slice.rows - row)};
    const auto codes = grow(buffers.codes, part.rows * slice.cols / 2);
    const auto scales = grow(buffers.scales, part.rows * slice.cols / kBlock);
    read_blocks(part, codes, scales, buffers);
    for (const std::byte s : scales) seen[std::to_integer<std::size_t>(s & std::byte{0x7F})] = true;
  }
  for (std::size_t bits = 0; bits < seen.size(); ++bits) {
    const float folded = E4M3{static_cast<std::uint8_t>(bits)}.to_float() * global;
    if (seen[bits] && !(E4M3::from_float(folded).to_float() == folded)) return false;
  }
  return true;
}

CopyWork::CopyWork(const Nvfp4Output& output, const LogicalTensor& t, const WeightSlice& slice,
                   bool encodes)
    : Nvfp4Work(output),
      global_(global_of(t, slice)),
      stored_(scale_of_slice(t.globals, t, slice).multiplier),
      encodes_(encodes),
      is_changed_(t.correction.changes_scales()) {}

GlobalScale copied_input(const LogicalTensor& t, const WeightSlice& slice,
                         const Declared* declared) {
  const std::string* own = declared == nullptr ? nullptr : declared->layer_algorithm(t.module());
  const std::string algorithm = own != nullptr        ? *own
                                : declared != nullptr ? declared->algorithm
                                                      : std::string();
  require<UnsupportedError>(!algorithm.starts_with("W4A8"),
                            "{}: {}, whose input scales are those of FP8; hint: --scheme w4a16 "
                            "leaves them out",
                            t.data.describe(), algorithm);
  if (t.inputs.empty()) {
    const bool wanted =
        declared == nullptr || DeclaredTargets(*declared).activations_of(t.module()).value_or(true);
    throw ValueError(fmt::format(
        "{}: has no input scale, others have one; hint: {}--scheme w4a16 leaves out the "
        "others",
        t.data.describe(), wanted ? "nvfp4 repair supplies it, and " : ""));
  }
  const GlobalScale& input = scale_of_slice(t.inputs, t, slice);
  require_usable(t.input, input);
  return input;
}

std::int64_t CopyWork::chunk_elements(const WeightSlice& slice) const {
  return slice.col_stride == 1 ? Nvfp4Work::chunk_elements(slice) : 4 * kTransposedChunkElements;
}

EncodedChunk CopyWork::encode(const MatrixRows& of, const RowsMethod& method,
                              Buffers& buffers) const {
  const std::int64_t rows = of.rows, cols = of.slice.cols;
  float global = global_.multiplier, ratio = stored_ / global;
  if (encodes_) {
    ratio *= global / method.global.multiplier;
    global = method.global.multiplier;
  }
  const auto codes = grow(buffers.codes, rows * cols / 2);
  const auto scales = grow(buffers.scales, rows * cols / kBlock);
  read_blocks(of, codes, scales, buffers);
  EncodedChunk chunk{codes, scales, {}};
  if (!is_changed_ && ratio == 1) return chunk;
  const auto view = [&](const float& multiplier) {
    return QuantizedView({.rows = rows, .cols = cols},
                         reinterpret_cast<const std::uint8_t*>(codes.data()),
                         reinterpret_cast<const std::uint8_t*>(scales.data()), &multiplier);
  };
  for (std::byte& s : scales) s &= std::byte{0x7F};
  const auto values = grow(buffers.input, rows * cols * dtype_size(DType::f32));
  const MatrixSpan before(values.data(), DType::f32, rows, cols);
  dequantize_into(view(stored_), before);
  for (std::byte& s : scales)
    s = static_cast<std::byte>(
        E4M3::from_float(E4M3{std::to_integer<std::uint8_t>(s)}.to_float() * ratio).bits);
  chunk.outcome.error = quantization_error(before, view(global));
  return chunk;
}

void CopyWork::write_scales(const MatrixOutput& to, const GlobalScale& global) const {
  Nvfp4Work::write_scales(to, encodes_ ? global : global_);
}

}  // namespace nvfp4::checkpoint
