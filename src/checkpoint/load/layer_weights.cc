#include "checkpoint/load/layer_weights.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/printable.h"
#include "core/require.h"

namespace nvfp4::checkpoint {
namespace {

/// Returns the dtype of a plain tensor, or nothing if layers do not support it.
std::optional<DType> dense_dtype(const LogicalTensor& t) {
  switch (t.data.info->dtype) {
    case safetensors::DType::bf16:
      return DType::bf16;
    case safetensors::DType::f16:
      return DType::f16;
    case safetensors::DType::f32:
      return DType::f32;
    default:
      return std::nullopt;
  }
}

/// Returns the stored position of row `i` if the rows of `n` matrices alternate.
std::int64_t stored_row(std::int64_t i, std::int64_t rows, int n) {
  return i % (rows / n) * n + i / (rows / n);
}

/// Returns the input scale of matrix `index`, or nothing if there is none.
std::optional<GlobalScale> input_scale_of(const LogicalTensor& t, std::int64_t index) {
  if (t.inputs.empty()) return std::nullopt;
  const GlobalScale& s = scale_of(t.inputs, index);
  require<FormatError>(is_valid(s), "{}: input scale {}, must be positive and finite", describe(t),
                       t.names->divisors ? s.divisor : s.multiplier);
  return s;
}

}  // namespace

std::string describe(const LogicalTensor& t) {
  return fmt::format("{}: tensor '{}'", t.data.file->path().string(), printable(t.name));
}

const LogicalTensor* LayerWeights::find(const std::string& module) const {
  const LogicalTensor* t = reader().find(module + ".weight");
  return t != nullptr ? t : reader().find(module);
}

const LogicalTensor& LayerWeights::get(const std::string& module, std::size_t dimensions) const {
  const LogicalTensor* t = find(module);
  require<FormatError>(t != nullptr, "{}: there is no tensor '{}.weight'", path(),
                       printable(module));
  require<FormatError>(t->shape.size() == dimensions, "{}: shape [{}], must have {} dimensions",
                       describe(*t), fmt::join(t->shape, ", "), dimensions);
  require<UnsupportedError>(reader().find(module + ".pre_quant_scale") == nullptr,
                            "{}: '{}.pre_quant_scale' scales the input, which layers do not do",
                            describe(*t), printable(module));
  require<FormatError>(std::ranges::all_of(t->shape, [](std::int64_t d) { return d > 0; }),
                       "{}: shape [{}], must not be empty", describe(*t),
                       fmt::join(t->shape, ", "));
  return *t;
}

void LayerWeights::require_wanted(const LogicalTensor& t) const {
  require<FormatError>(!t.is_plain() || dense_dtype(t),
                       "{}: dtype {}, must be NVFP4, MXFP4, FP8, BF16, F16 or F32", describe(t),
                       t.form_name());
  require<FormatError>(unquantized_ == Unquantized::quantize,
                       "{}: {}, must be NVFP4; Unquantized::quantize would quantize it",
                       describe(t), t.form_name());
}

const std::byte* LayerWeights::bytes(const StoredTensor& t, std::int64_t offset,
                                     std::int64_t size) {
  if (const auto mapped = t.file->data(*t.info); !mapped.empty()) return mapped.data() + offset;
  auto& copy = bytes_.emplace_back(static_cast<std::size_t>(size));
  t.read(offset, copy);
  return copy.data();
}

WeightView LayerWeights::matrix(const std::string& module) {
  const LogicalTensor& t = get(module, 2);
  if (t.is_nvfp4()) return quantized(t, 0);
  if (!t.is_plain()) return converted(t);
  return slice(t, 0, t.shape[0], t.shape[1], t.shape[1], 1);
}

WeightView LayerWeights::quantized(const LogicalTensor& t, std::int64_t index, int interleave) {
  const auto globals = static_cast<std::int64_t>(t.globals.size());
  const bool each_row = globals > t.matrices();
  const QuantizedShape shape{.rows = t.outputs(),
                             .cols = t.depth(),
                             .scope = each_row ? GlobalScope::vector : GlobalScope::tensor};
  std::vector<float>& own = globals_.emplace_back();
  for (std::int64_t i = 0; i < shape.global_count(); ++i) {
    const std::int64_t at = each_row ? index * shape.rows + i : globals == 1 ? 0 : index;
    own.push_back(t.globals[static_cast<std::size_t>(at)].multiplier);
    require<FormatError>(own.back() >= 0 && std::isfinite(own.back()),
                         "{}: global scale {}, must be finite and not negative", describe(t),
                         own.back());
  }
  const std::byte *codes, *scales;
  if (t.names->arrangement == Arrangement{} && !t.transposed) {
    const std::int64_t scale_bytes = shape.rows * shape.blocks();
    codes = bytes(t.data, index * shape.code_bytes(), shape.code_bytes());
    scales = bytes(t.scales, index * scale_bytes, scale_bytes);
  } else {
    const std::int64_t blocks = shape.rows * shape.blocks();
    auto& code_copy = bytes_.emplace_back(static_cast<std::size_t>(shape.code_bytes()));
    auto& scale_copy = bytes_.emplace_back(static_cast<std::size_t>(blocks));
    t.read_blocks(index * blocks, code_copy, scale_copy);
    codes = code_copy.data();
    scales = scale_copy.data();
  }
  if (interleave > 1) {
    codes = sorted_rows(codes, shape.rows, shape.cols / 2, interleave);
    scales = sorted_rows(scales, shape.rows, shape.blocks(), interleave);
    if (each_row) {
      const std::vector<float> stored = own;
      for (std::int64_t i = 0; i < shape.rows; ++i)
        own[static_cast<std::size_t>(i)] =
            stored[static_cast<std::size_t>(stored_row(i, shape.rows, interleave))];
    }
  }
  WeightView w(QuantizedView(shape, reinterpret_cast<const std::uint8_t*>(codes),
                             reinterpret_cast<const std::uint8_t*>(scales), own.data()));
  w.input_scale = input_scale_of(t, index);
  w.name = t.name;
  return w;
}

WeightView LayerWeights::converted(const LogicalTensor& t) {
  require_wanted(t);
  Matrix& values = copies_.emplace_back(DType::f32, t.rows(), t.cols());
  t.read(0, {values.data<float>(), static_cast<std::size_t>(t.elements())});
  WeightView w(values.view());
  w.name = t.name;
  return w;
}

const std::byte* LayerWeights::sorted_rows(const std::byte* in, std::int64_t rows,
                                           std::int64_t bytes, int interleave) {
  std::vector<std::byte>& out = bytes_.emplace_back(static_cast<std::size_t>(rows * bytes));
  for (std::int64_t i = 0; i < rows; ++i)
    std::memcpy(out.data() + i * bytes, in + stored_row(i, rows, interleave) * bytes,
                static_cast<std::size_t>(bytes));
  return out.data();
}

std::vector<WeightView> LayerWeights::stack(const LogicalTensor& t, int interleave) {
  std::vector<WeightView> list;
  for (std::int64_t e = 0; e < t.shape[0]; ++e) list.push_back(quantized(t, e, interleave));
  return list;
}

WeightView LayerWeights::slice(const LogicalTensor& t, std::int64_t first, std::int64_t rows,
                               std::int64_t cols, std::int64_t row_stride,
                               std::int64_t col_stride) {
  require_wanted(t);
  const DType dtype = *dense_dtype(t);
  const std::int64_t size = dtype_size(dtype);
  const std::int64_t last = (rows - 1) * row_stride + (cols - 1) * col_stride;
  const std::byte* data = bytes(t.data, first * size, (last + 1) * size);
  const bool aligned = reinterpret_cast<std::uintptr_t>(data) % static_cast<std::size_t>(size) == 0;
  WeightView w;
  if (aligned && col_stride == 1) {
    w = WeightView(MatrixView(data, dtype, rows, cols, row_stride));
  } else if (aligned && row_stride == 1) {
    w = WeightView(MatrixView(data, dtype, cols, rows, col_stride), BlockAxis::columns);
  } else {  // The values are interleaved or at an unaligned address.
    Matrix& copy = copies_.emplace_back(dtype, rows, cols);
    for (std::int64_t i = 0; i < rows; ++i)
      for (std::int64_t j = 0; j < cols; ++j)
        std::memcpy(copy.data<std::byte>() + (i * cols + j) * size,
                    data + (i * row_stride + j * col_stride) * size,
                    static_cast<std::size_t>(size));
    w = WeightView(copy.view());
  }
  w.name = t.name;
  return w;
}

std::vector<float> LayerWeights::bias(const std::string& module, std::int64_t outputs) const {
  const LogicalTensor* t = reader().find(module + ".bias");
  if (t == nullptr) return {};
  require<FormatError>(t->is_plain() && dense_dtype(*t), "{}: dtype {}, must be BF16, F16 or F32",
                       describe(*t), t->form_name());
  require<FormatError>(t->shape == std::vector{outputs}, "{}: shape [{}], must be [{}]",
                       describe(*t), fmt::join(t->shape, ", "), outputs);
  std::vector<float> values(static_cast<std::size_t>(outputs));
  t->read(0, values);
  return values;
}

void LayerWeights::require_no_bias(const std::string& module) const {
  for (const char* end : {".bias", "_bias"})
    require<UnsupportedError>(reader().find(module + end) == nullptr,
                              "{}: '{}{}' is a bias, which the layer does not add", path(),
                              printable(module), end);
}

void LayerWeights::require_shape(const WeightView& w, std::int64_t outputs,
                                 std::int64_t inputs) const {
  require<FormatError>(w.outputs() == outputs && w.inputs() == inputs,
                       "{}: tensor '{}' is [{}, {}], must be [{}, {}] as its siblings", path(),
                       printable(w.name), w.outputs(), w.inputs(), outputs, inputs);
}

}  // namespace nvfp4::checkpoint
