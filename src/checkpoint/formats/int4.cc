// INT4 of compressed-tensors ("pack-quantized"), GPTQ and AWQ.
// Sources: github.com/vllm-project/compressed-tensors, compressors/pack_quantized;
// github.com/ModelCloud/GPTQModel, gptqmodel/nn_modules/qlinear; github.com/casper-hansen/AutoAWQ,
// awq/modules/linear/gemm.py.
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>

#include "checkpoint/formats/format.h"
#include "checkpoint/formats/logical_tensor.h"
#include "checkpoint/formats/unread_forms.h"
#include "core/printable.h"

namespace nvfp4::checkpoint {
namespace {

using safetensors::DType;
using Shape = std::vector<std::int64_t>;
using Words = std::vector<std::uint32_t>;

constexpr std::int64_t kCodes = 8;                            ///< codes in a word
constexpr std::int64_t kMostColumns = std::int64_t{1} << 40;  ///< products of sizes fit 64 bits
/// The middle of the codes, which is zero if there are no zero points.
constexpr int kMiddle = 8;
/// The nibble of each of eight columns in AWQ's words.
/// Source: github.com/casper-hansen/AutoAWQ, awq/utils/packing_utils.py, AWQ_REVERSE_ORDER.
constexpr int kAwqNibble[kCodes] = {0, 4, 1, 5, 2, 6, 3, 7};

bool is_matrix(const StoredTensor& t) {
  return t.info->shape.size() == 2 && t.info->shape[0] > 0 && t.info->shape[1] > 0;
}

/// Returns all values of a tensor of 32-bit integers.
std::vector<std::int32_t> integers_of(const StoredTensor& t) {
  std::vector<std::int32_t> values(t.info->bytes / sizeof(std::int32_t));
  t.read(0, std::as_writable_bytes(std::span(values)));
  return values;
}

std::string shape_of(const StoredTensor& t) {
  return fmt::format("[{}]", fmt::join(t.info->shape, ", "));
}

/// Returns the fault of tensors that do not fit together, unless codes of 2, 3 or 8 bits would fit:
/// a row then has `stated` columns, for which codes of 4 bits would be `cols`.
Int4Fault misfit(std::string text, std::int64_t stated, std::int64_t cols) {
  const bool fits =
      stated > 0 && (2 * cols == stated || 4 * cols == 3 * stated || cols == 2 * stated);
  return {fits ? kAnotherForm : "wrong-shape", std::move(text)};
}

/// Returns why weight_shape of compressed-tensors does not say [rows, cols] of 4-bit codes.
Int4Fault check_shape(const StoredTensor& stored, std::int64_t rows, std::int64_t cols) {
  if (!stored) return {"wrong-shape", "it has no weight_shape"};
  const bool wide = stored.info->dtype == DType::i64;
  if ((!wide && stored.info->dtype != DType::i32) || stored.info->shape != Shape{2})
    return {"wrong-shape",
            fmt::format("weight_shape is {}, must be I32 or I64 [2]", form_of(stored))};
  Shape shape(2);
  if (wide) {
    stored.read(0, std::as_writable_bytes(std::span(shape)));
  } else {
    const std::vector<std::int32_t> values = integers_of(stored);
    shape.assign(values.begin(), values.end());
  }
  if (shape == Shape{rows, cols}) return {};
  return misfit(fmt::format("weight_shape is [{}], must be [{}, {}] for codes of 4 bits",
                            fmt::join(shape, ", "), rows, cols),
                shape[0] == rows && shape[1] < kMostColumns ? shape[1] : 0, cols);
}

/// Returns why the group of each column is not below `groups`.
Int4Fault check_groups(const StoredTensor& stored, std::int64_t cols, std::int64_t groups) {
  const Shape& shape = stored.info->shape;
  if (stored.info->dtype != DType::i32 || shape != Shape{cols})
    return misfit(
        fmt::format("the groups of columns are {}, must be I32 [{}]", form_of(stored), cols),
        shape.size() == 1 ? shape[0] : 0, cols);
  for (const std::int32_t group : integers_of(stored))
    if (group < 0 || group >= groups)
      return {"wrong-shape",
              fmt::format("a column has group {}, must be from 0 to {}", group, groups - 1)};
  return {};
}

/// Returns why the layout that the configuration names is not read, or "".
std::string check_layout(const Declared& declared) {
  if (declared.method != "awq") return {};
  const std::pair<const char*, const std::string*> members[] = {
      {"version", &declared.version}, {"checkpoint_format", &declared.checkpoint_format}};
  for (const auto& [key, text] : members)
    if (text->starts_with("gemv") || text->starts_with("GEMV"))
      return fmt::format("{} = {} of AWQ, must be gemm", key, printable(*text));
  return {};
}

/// Returns how the configuration contradicts the tensors. Sets the offset of GPTQ's zero points.
/// Source: github.com/ModelCloud/GPTQModel, gptqmodel/quantization/config.py.
Int4Fault check_declared(LogicalTensor& t, const Declared* declared) {
  const std::int64_t group = t.block_cols;
  const auto another = [](std::string text) { return Int4Fault{kAnotherForm, std::move(text)}; };
  if (t.names->order == Int4Order::gptq) {
    if (declared != nullptr && !declared->method.empty() && declared->method != "gptq")
      return another(fmt::format("quant_method = {}, but the tensors have the layout of gptq",
                                 printable(declared->method)));
    if (declared == nullptr || declared->method.empty())
      return another(
          "no configuration says quant_method = gptq, whose version decides the zero "
          "points");
    const std::string& version = declared->checkpoint_format;
    if (version != "" && version != "gptq" && version != "gptq_v2")
      return another(
          fmt::format("checkpoint_format = {}, must be gptq or gptq_v2", printable(version)));
    t.int4->zero_offset = version == "gptq_v2" ? 0 : 1;
  }
  if (declared == nullptr) return {};
  if (t.names->order != Int4Order::rows) {
    if (declared->bits != 0 && declared->bits != 4)
      return another(
          fmt::format("bits = {}, but the tensors have codes of 4 bits", declared->bits));
    if (declared->group_size.value_or(0) > 0 && *declared->group_size != group)
      return {declared->bits == 4 ? "wrong-shape" : kAnotherForm,
              fmt::format("group_size = {}, but a scale is there for each {} columns",
                          *declared->group_size, group)};
    return {};
  }
  const bool fits = !declared->is_compressed_tensors() || declared->groups.empty() ||
                    std::ranges::any_of(declared->groups, [&](const DeclaredGroup& g) {
                      return !g.is_float && g.bits == 4 && g.is_symmetric == !t.int4->zeros &&
                             (g.group_size > 0 ? g.group_size : t.cols()) == group;
                    });
  if (fits) return {};
  return {"wrong-shape",
          fmt::format("no group of config_groups has 4 bits, group_size {} and symmetric: {}",
                      group, !t.int4->zeros)};
}

/// Reads `count` elements of `size` bytes from each of `lines` lines of `width` elements.
template <class T>
std::span<T> read_lines(const StoredTensor& from, std::int64_t size, std::int64_t first_line,
                        std::int64_t lines, std::int64_t width, std::int64_t first,
                        std::int64_t count, std::vector<T>& buffer) {
  buffer.resize(static_cast<std::size_t>(lines * count * size) / sizeof(T) + 1);
  const std::span<std::byte> bytes = std::as_writable_bytes(std::span(buffer));
  const bool whole = count == width;
  const std::int64_t pieces = whole ? 1 : lines, length = (whole ? lines : 1) * count * size;
  for (std::int64_t i = 0; i < pieces; ++i)
    from.read(
        ((first_line + i) * width + first) * size,
        bytes.subspan(static_cast<std::size_t>(i * length), static_cast<std::size_t>(length)));
  return std::span(buffer).first(static_cast<std::size_t>(lines * count * size) / sizeof(T));
}

int nibble(std::uint32_t word, std::int64_t at) { return static_cast<int>(word >> (4 * at) & 15); }

/// The tensors of rows [row, row + rows) of a weight, and their values.
class Rows {
 public:
  Rows(const LogicalTensor& t, std::int64_t row, std::int64_t rows)
      : order_(t.names->order),
        row_(row),
        rows_(rows),
        word_(row / kCodes),
        words_((row + rows - 1) / kCodes + 1 - word_),
        groups_(t.cols() / t.block_cols),
        offset_(t.int4->zero_offset) {
    thread_local Words code_words, zero_words;
    thread_local std::vector<std::byte> scale_bytes;
    const std::int64_t cols = t.cols(), outputs = t.rows();
    const std::int64_t size = safetensors::dtype_bits(t.scales.info->dtype) / 8;
    const bool packed = order_ == Int4Order::rows;
    switch (order_) {
      case Int4Order::rows:
        codes_ = read_lines(t.data, 4, row, rows, cols / kCodes, 0, cols / kCodes, code_words);
        break;
      case Int4Order::gptq:
        codes_ = read_lines(t.data, 4, 0, cols / kCodes, outputs, row, rows, code_words);
        break;
      case Int4Order::awq:
        codes_ = read_lines(t.data, 4, 0, cols, outputs / kCodes, word_, words_, code_words);
        break;
    }
    code_words_ = packed ? cols / kCodes : order_ == Int4Order::gptq ? rows : words_;
    const auto bytes =
        packed ? read_lines(t.scales, size, row, rows, groups_, 0, groups_, scale_bytes)
               : read_lines(t.scales, size, 0, groups_, outputs, row, rows, scale_bytes);
    scales_.resize(static_cast<std::size_t>(rows * groups_));
    to_floats(t.scales.info->dtype, bytes, scales_);
    if (t.int4->zeros)
      zeros_ = packed ? read_lines(t.int4->zeros, 4, word_, words_, groups_, 0, groups_, zero_words)
                      : read_lines(t.int4->zeros, 4, 0, groups_, outputs / kCodes, word_, words_,
                                   zero_words);
  }

  std::int64_t groups() const { return groups_; }

  float scale(std::int64_t r, std::int64_t group) const {
    return scales_[index(order_ == Int4Order::rows ? r * groups_ + group : group * rows_ + r)];
  }
  int zero(std::int64_t r, std::int64_t group) const {
    if (zeros_.empty()) return kMiddle;
    const std::int64_t at = (row_ + r) / kCodes - word_, inside = (row_ + r) % kCodes;
    if (order_ == Int4Order::rows) return nibble(zeros_[index(at * groups_ + group)], inside);
    const std::uint32_t word = zeros_[index(group * words_ + at)];
    if (order_ == Int4Order::awq) return nibble(word, kAwqNibble[inside]);
    // Version 1 stores the zero point minus one, and 15 for zero.
    return (nibble(word, inside) + offset_) & 15;
  }
  int code(std::int64_t r, std::int64_t col) const {
    switch (order_) {
      case Int4Order::rows:
        return nibble(codes_[index(r * code_words_ + col / kCodes)], col % kCodes);
      case Int4Order::gptq:
        return nibble(codes_[index(col / kCodes * code_words_ + r)], col % kCodes);
      case Int4Order::awq:
        break;
    }
    return nibble(codes_[index(col * code_words_ + (row_ + r) / kCodes - word_)],
                  kAwqNibble[(row_ + r) % kCodes]);
  }

 private:
  static std::size_t index(std::int64_t i) { return static_cast<std::size_t>(i); }

  Int4Order order_;
  std::int64_t row_, rows_;
  std::int64_t word_, words_;    ///< the words along rows that hold `rows_`
  std::int64_t code_words_ = 0;  ///< words of a line of `codes_`
  std::int64_t groups_;
  int offset_;
  std::span<std::uint32_t> codes_, zeros_;
  std::vector<float> scales_;
};

}  // namespace

Int4Fault check_int4(LogicalTensor& t, const Declared* declared) {
  if (!t.scales) return {"missing-scale", "it has no scales"};
  if (declared != nullptr && t.names->order != Int4Order::rows)
    if (std::string wrong = check_layout(*declared); !wrong.empty()) return {kAnotherForm, wrong};
  if (t.data.info->dtype != DType::i32 || !is_matrix(t.data)) {
    const bool stack = t.data.info->shape.size() == t.scales.info->shape.size();
    return {t.data.info->dtype != DType::i32 ? "wrong-dtype"
            : stack                          ? kAnotherForm
                                             : "wrong-shape",
            fmt::format("its codes are {}, must be I32 with two dimensions", form_of(t.data))};
  }
  const DType dtype = t.scales.info->dtype;
  const bool is_float = dtype == DType::f16 || dtype == DType::bf16 || dtype == DType::f32;
  if (!is_float || !is_matrix(t.scales))
    return {is_float ? "wrong-shape" : "wrong-dtype",
            fmt::format("its scales are {}, must be F16, BF16 or F32 with two dimensions",
                        form_of(t.scales))};
  const Shape &codes = t.data.info->shape, &scales = t.scales.info->shape;
  const bool packed = t.names->order == Int4Order::rows, awq = t.names->order == Int4Order::awq;
  t.shape = packed ? Shape{codes[0], codes[1] * kCodes}
                   : Shape{awq ? codes[1] * kCodes : codes[1], awq ? codes[0] : codes[0] * kCodes};
  const std::int64_t rows = t.rows(), cols = t.cols(), groups = scales[packed ? 1 : 0];
  if (packed)
    if (Int4Fault wrong = check_shape(t.int4->shape, rows, cols); !wrong.text.empty()) return wrong;
  if (scales[packed ? 0 : 1] != rows || cols % groups != 0)
    return {"wrong-shape",
            fmt::format("its scales are {}, must be one for each of {} rows and for groups of {} "
                        "columns",
                        shape_of(t.scales), rows, cols)};
  t.block_rows = 1;
  t.block_cols = cols / groups;
  if (t.int4->column_groups)
    if (Int4Fault wrong = check_groups(t.int4->column_groups, cols, groups); !wrong.text.empty())
      return wrong;
  const Shape zeros =
      packed ? Shape{(rows + kCodes - 1) / kCodes, groups} : Shape{groups, rows / kCodes};
  if (!packed && !t.int4->zeros) return {"missing-scale", "it has no zero points"};
  if (!packed && rows % kCodes != 0)
    return {kAnotherForm, fmt::format("{} rows, must be a multiple of 8", rows)};
  if (t.int4->zeros &&
      (t.int4->zeros.info->dtype != DType::i32 || t.int4->zeros.info->shape != zeros))
    return {"wrong-shape", fmt::format("its zero points are {}, must be I32 [{}] of 4 bits",
                                       form_of(t.int4->zeros), fmt::join(zeros, ", "))};
  return check_declared(t, declared);
}

void read_int4(const LogicalTensor& t, std::int64_t first, std::span<float> out) {
  const std::int64_t cols = t.cols(), n = static_cast<std::int64_t>(out.size());
  const std::int64_t row = first / cols, rows = (first + n - 1) / cols + 1 - row;
  const Rows stored(t, row, rows);
  std::vector<std::int32_t> group_of;
  if (t.int4->column_groups) group_of = integers_of(t.int4->column_groups);
  std::vector<float> scales(static_cast<std::size_t>(stored.groups()));
  std::vector<int> zeros(scales.size());
  for (std::int64_t i = 0; i < n;) {
    const std::int64_t r = (first + i) / cols - row, begin = (first + i) % cols,
                       end = std::min(cols, begin + n - i);
    for (std::size_t g = 0; g < scales.size(); ++g) {
      scales[g] = stored.scale(r, static_cast<std::int64_t>(g));
      zeros[g] = stored.zero(r, static_cast<std::int64_t>(g));
    }
    for (std::int64_t col = begin; col < end; ++col, ++i) {
      const auto g = static_cast<std::size_t>(
          group_of.empty() ? col / t.block_cols : group_of[static_cast<std::size_t>(col)]);
      out[static_cast<std::size_t>(i)] =
          static_cast<float>(stored.code(r, col) - zeros[g]) * scales[g];
    }
  }
}

std::string_view int4_name(const WeightNames& names) {
  switch (names.order) {
    case Int4Order::gptq:
      return "GPTQ";
    case Int4Order::awq:
      return "AWQ";
    case Int4Order::rows:
      break;
  }
  return "packed integers of compressed-tensors";
}

extern const CheckpointFormat kInt4;

namespace {

const WeightNames kPackedNames = {
    .format = &kInt4,
    .encoding = Encoding::int4,
    .codes = ".weight_packed",
    .scales = ".weight_scale",
    .zeros = ".weight_zero_point",
    .column_groups = ".weight_g_idx",
    .shape = ".weight_shape",
    .order = Int4Order::rows,
    .claims = [](const TensorTable& table, const StoredTensor& codes, const std::string& module) {
      return table.find(module + ".weight_shape") ||
             (codes.info->dtype == DType::i32 && table.find(module + ".weight_scale"));
    }};

/// Words along N are an eighth as many as the scales of a group.
const WeightNames kAwqNames = {
    .format = &kInt4,
    .encoding = Encoding::int4,
    .codes = ".qweight",
    .scales = ".scales",
    .zeros = ".qzeros",
    .order = Int4Order::awq,
    .claims = [](const TensorTable& table, const StoredTensor& codes, const std::string& module) {
      const StoredTensor scales = table.find(module + ".scales");
      return scales && is_matrix(codes) && is_matrix(scales) &&
             codes.info->shape[1] != scales.info->shape[1];
    }};

const WeightNames kGptqNames = {
    .format = &kInt4,
    .encoding = Encoding::int4,
    .codes = ".qweight",
    .scales = ".scales",
    .zeros = ".qzeros",
    .column_groups = ".g_idx",
    .order = Int4Order::gptq,
    .claims = [](const TensorTable& table, const StoredTensor&, const std::string& module) {
      return table.find(module + ".scales") || table.find(module + ".qzeros");
    }};

constexpr const WeightNames* kReads[] = {&kPackedNames, &kAwqNames, &kGptqNames};

}  // namespace

const CheckpointFormat kInt4 = {.name = "int4", .reads = kReads};

}  // namespace nvfp4::checkpoint
