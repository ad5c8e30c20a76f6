#include "checkpoint/safetensors/header.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>
#include <tuple>
#include <utility>

#include "checkpoint/io/strict_json.h"
#include "core/printable.h"
#include "core/require.h"
#include "nvfp4/checkpoint/safetensors.h"

namespace nvfp4::safetensors {
namespace {

constexpr std::uint64_t kMaxExtent = std::numeric_limits<std::int64_t>::max();
constexpr int kMaxDepth = 4;  // A valid header has three levels; a fourth gives a better error.

std::string shape_text(const std::vector<std::int64_t>& shape) {
  constexpr std::size_t kShown = 16;
  const auto end = shape.begin() + static_cast<std::ptrdiff_t>(std::min(kShown, shape.size()));
  return fmt::format("[{}{}]", fmt::join(shape.begin(), end, ", "),
                     shape.size() > kShown ? ", ..." : "");
}

template <class E, class... Args>
[[noreturn]] void fail(ErrorCode code, const std::string& where,
                       fmt::format_string<Args...> message, Args&&... args) {
  throw E(fmt::format("{}: {}", where, fmt::format(message, std::forward<Args>(args)...)), code);
}

/// Returns the size in bytes. The product of the nonzero extents must also fit into 64 bits, so
/// that strides and partial products never overflow. Extents are not negative. `where()` starts the
/// message.
template <class E, class Where>
std::uint64_t tensor_bytes(DType dtype, const std::vector<std::int64_t>& shape, ErrorCode code,
                           const Where& where) {
  std::uint64_t bits = static_cast<std::uint64_t>(dtype_bits(dtype));
  bool empty = false;
  for (const std::int64_t extent : shape) {
    empty |= extent == 0;
    const auto factor = std::max<std::uint64_t>(1, static_cast<std::uint64_t>(extent));
    if (__builtin_mul_overflow(bits, factor, &bits) || bits > kMaxExtent)
      fail<E>(code, where(), "shape {} of {} overflows 64 bits", shape_text(shape),
              dtype_name(dtype));
  }
  if (empty) return 0;
  if (bits % 8 != 0)
    fail<E>(code, where(), "shape {} of {} has {} bits, must be whole bytes", shape_text(shape),
            dtype_name(dtype), bits);
  return bits / 8;
}

/// Sorts the names and returns the first that occurs twice, or an empty name. A set would take a
/// hundred bytes for each name.
std::string_view find_twice(std::vector<std::string_view>& names) {
  std::ranges::sort(names);
  const auto twice = std::ranges::adjacent_find(names);
  return twice == names.end() ? std::string_view() : *twice;
}

/// Builds a Header whose offsets are relative to the data section.
class HeaderVisitor final : public JsonVisitor {
 public:
  HeaderVisitor(const std::string& file, std::uint64_t data_bytes)
      : file_(file), data_bytes_(data_bytes) {}

  Header take() {
    std::vector<std::string_view> names;
    names.reserve(header_.tensors.size());
    for (const TensorInfo& t : header_.tensors) names.push_back(t.name);
    if (const auto twice = find_twice(names); !twice.empty()) fail_twice(twice);
    header_.tensors.shrink_to_fit();
    return std::move(header_);
  }

  void begin_object(int depth) override {
    if (depth > 2) refuse_value(depth == 3 ? "an object" : "an array with an object");
    inside_entry_ = depth == 2;
  }
  bool checks_keys(int depth) const override { return depth == 1; }
  void key(std::string name, int depth) override {
    if (depth == 1) {
      in_metadata_ = name == kMetadataKey;
      if (in_metadata_ && std::exchange(has_metadata_, true)) fail_twice(name);
      entry_ = std::move(name);
      tensor_ = {};
      offsets_.clear();
      seen_ = {};
      return;
    }
    key_ = std::move(name);
    if (in_metadata_) return;
    const auto field = std::find(kFields.begin(), kFields.end(), key_);
    if (field == kFields.end())
      refuse("key '{}', must be dtype, shape or data_offsets", printable(key_));
    field_ = static_cast<Field>(field - kFields.begin());
    seen_[static_cast<std::size_t>(field_)] = true;
  }
  void end_object(int depth) override {
    if (depth != 2) return;
    if (!in_metadata_) finish_tensor();
    entry_.reset();
    inside_entry_ = false;
  }
  void begin_array(int depth) override {
    if (depth > 3) refuse_value("an array with an array");
    if (depth < 3 || in_metadata_ || field_ == Field::dtype) refuse_value("an array");
  }
  void end_array(int) override {}
  void value(JsonScalar scalar, int depth) override {
    if (depth == 3) return element(scalar);
    auto* text = std::get_if<std::string>(&scalar);
    const bool text_belongs_here = inside_entry_ && (in_metadata_ || field_ == Field::dtype);
    if (!text || !text_belongs_here) refuse_value(describe(scalar));
    if (in_metadata_) {
      header_.metadata.emplace(std::move(key_), std::move(*text));
      return;
    }
    const auto dtype = dtype_from_name(*text);
    if (!dtype) refuse("dtype '{}' is unknown", printable(*text));
    tensor_.dtype = *dtype;
  }
  std::string context() const override {
    if (!entry_) return {};
    return in_metadata_ ? "__metadata__: " : fmt::format("tensor '{}': ", printable(*entry_));
  }

 private:
  enum class Field : std::uint8_t { dtype, shape, data_offsets };
  static constexpr std::array<std::string_view, 3> kFields = {"dtype", "shape", "data_offsets"};
  static constexpr std::array<std::string_view, 3> kRules = {
      "a string", "an array of non-negative integers", "an array of two non-negative integers"};

  [[noreturn]] void fail_twice(std::string_view name) const {
    fail<FormatError>(ErrorCode::duplicate_name, file_, "key '{}' appears twice, must be unique",
                      printable(name));
  }
  template <class... Args>
  [[noreturn]] void refuse(fmt::format_string<Args...> message, Args&&... args) const {
    refuse(ErrorCode::header, message, std::forward<Args>(args)...);
  }
  template <class... Args>
  [[noreturn]] void refuse(ErrorCode code, fmt::format_string<Args...> message,
                           Args&&... args) const {
    fail<FormatError>(code, file_, "{}{}", context(),
                      fmt::format(message, std::forward<Args>(args)...));
  }
  /// Rejects a value. The rule for it follows from the current key.
  [[noreturn]] void refuse_value(const std::string& what) const {
    if (!inside_entry_) refuse("{}, must be an object", what);
    const auto rule = kRules[in_metadata_ ? 0 : static_cast<std::size_t>(field_)];
    refuse("{} = {}, must be {}", printable(key_), what, rule);
  }

  void element(const JsonScalar& scalar) {
    const auto* number = std::get_if<std::uint64_t>(&scalar);
    if (!number) refuse_value(fmt::format("an array with {}", describe(scalar)));
    if (field_ == Field::data_offsets) {
      if (offsets_.size() == 2) refuse_value("an array of more than two");
      offsets_.push_back(*number);
      return;
    }
    if (*number > kMaxExtent) refuse("shape has {}, must be at most {}", *number, kMaxExtent);
    tensor_.shape.push_back(static_cast<std::int64_t>(*number));
  }

  void finish_tensor() {
    for (std::size_t i = 0; i < kFields.size(); ++i)
      if (!seen_[i]) refuse("{} is missing", kFields[i]);
    if (offsets_.size() != 2) refuse_value(fmt::format("an array of {}", offsets_.size()));
    const std::uint64_t begin = offsets_[0], end = offsets_[1];
    if (begin > end)
      refuse(ErrorCode::tensor_ranges, "data_offsets [{}, {}], must not end before they begin",
             begin, end);
    if (end > data_bytes_)
      refuse(ErrorCode::cut_short,
             "data_offsets [{}, {}], must lie within the {} bytes of data that the file has", begin,
             end, data_bytes_);
    const auto bytes = tensor_bytes<FormatError>(
        tensor_.dtype, tensor_.shape, ErrorCode::header,
        [&] { return fmt::format("{}: tensor '{}'", file_, printable(*entry_)); });
    if (end - begin != bytes)
      refuse(ErrorCode::tensor_ranges,
             "data_offsets [{}, {}] span {} bytes, must span {}: shape {} of {}", begin, end,
             end - begin, bytes, shape_text(tensor_.shape), dtype_name(tensor_.dtype));
    // The name is a copy, since the parser's strings have up to twice the capacity.
    tensor_.name = *entry_;
    tensor_.begin = begin;
    tensor_.bytes = bytes;
    header_.tensors.push_back(std::move(tensor_));
  }

  const std::string& file_;
  std::uint64_t data_bytes_;
  Header header_;
  std::optional<std::string> entry_;  // key of the current entry
  bool inside_entry_ = false;         // inside the object of that entry
  bool in_metadata_ = false, has_metadata_ = false;
  std::string key_;  // key inside the entry
  Field field_ = Field::dtype;
  TensorInfo tensor_;
  std::vector<std::uint64_t> offsets_;
  std::array<bool, 3> seen_{};
};

/// Throws FormatError unless every byte of the data belongs to exactly one tensor. Source:
/// safetensors README, "Format": "the byte buffer needs to be entirely indexed, and cannot contain
/// holes".
void check_cover(const std::vector<TensorInfo>& sorted, std::uint64_t data_bytes,
                 const std::string& file) {
  std::uint64_t covered = 0;
  const TensorInfo* previous = nullptr;
  for (const TensorInfo& t : sorted) {
    const std::uint64_t end = t.begin + t.bytes;
    if (t.begin < covered)
      fail<FormatError>(ErrorCode::tensor_ranges, file,
                        "tensor '{}': data_offsets [{}, {}] overlap those of tensor '{}'",
                        printable(t.name), t.begin, end, printable(previous->name));
    if (t.begin > covered)
      fail<FormatError>(ErrorCode::tensor_ranges, file,
                        "tensor '{}': data_offsets begin at {}, must begin at {}: the bytes "
                        "between belong to no tensor",
                        printable(t.name), t.begin, covered);
    covered = end;
    previous = &t;
  }
  if (covered != data_bytes)
    fail<FormatError>(ErrorCode::cut_short, file,
                      "tensors end at byte {} of the data, must cover all {} bytes of it", covered,
                      data_bytes);
}

std::string json_string(const std::string& text, const std::string& file) {
  try {
    return nlohmann::json(text).dump();
  } catch (const nlohmann::json::exception&) {
    throw ValueError(fmt::format("{}: '{}', must be valid UTF-8", file, printable(text)));
  }
}

struct Row {
  DType dtype;
  std::string_view name;
  int bits;
};

constexpr Row kTable[] = {
    {DType::boolean, "BOOL", 8},
    {DType::u8, "U8", 8},
    {DType::i8, "I8", 8},
    {DType::f8_e5m2, "F8_E5M2", 8},
    {DType::f8_e4m3, "F8_E4M3", 8},
    {DType::f8_e8m0, "F8_E8M0", 8},
    {DType::f8_e4m3fnuz, "F8_E4M3FNUZ", 8},
    {DType::f8_e5m2fnuz, "F8_E5M2FNUZ", 8},
    {DType::f4, "F4", 4},
    {DType::f6_e2m3, "F6_E2M3", 6},
    {DType::f6_e3m2, "F6_E3M2", 6},
    {DType::i16, "I16", 16},
    {DType::u16, "U16", 16},
    {DType::f16, "F16", 16},
    {DType::bf16, "BF16", 16},
    {DType::i32, "I32", 32},
    {DType::u32, "U32", 32},
    {DType::f32, "F32", 32},
    {DType::f64, "F64", 64},
    {DType::i64, "I64", 64},
    {DType::u64, "U64", 64},
    {DType::c64, "C64", 64},
};

constexpr bool rows_stand_at_their_dtype() {
  for (std::size_t i = 0; i < std::size(kTable); ++i)
    if (static_cast<std::size_t>(kTable[i].dtype) != i) return false;
  return std::size(kTable) == static_cast<std::size_t>(DType::c64) + 1;
}
static_assert(rows_stand_at_their_dtype());

}  // namespace

Header parse_header(std::span<const std::byte> start, std::uint64_t file_bytes,
                    const std::string& file) {
  const std::string where = printable(file, 4096);
  start = start.first(std::min<std::uint64_t>(start.size(), file_bytes));
  require<FormatError>(start.size() >= kLengthBytes, ErrorCode::header,
                       "{}: {} bytes, must be at least the {} of a header length", where,
                       start.size(), kLengthBytes);
  std::uint64_t length = 0;
  for (std::size_t i = 0; i < kLengthBytes; ++i)
    length |= std::to_integer<std::uint64_t>(start[i]) << (8 * i);
  require<FormatError>(length <= kMaxHeaderBytes, ErrorCode::header,
                       "{}: no safetensors file: its first 8 bytes are a header length of {}, must "
                       "be at most {}",
                       where, length, kMaxHeaderBytes);
  require<FormatError>(length <= start.size() - kLengthBytes, ErrorCode::header,
                       "{}: header length {}, must fit into the file of {} bytes", where, length,
                       file_bytes);
  const std::string_view json(reinterpret_cast<const char*>(start.data()) + kLengthBytes, length);
  require<FormatError>(json.starts_with('{'), ErrorCode::header,
                       "{}: header starts with '{}', must be '{{'", where,
                       printable(json.substr(0, 1)));

  const std::uint64_t data_begin = kLengthBytes + length;
  const std::uint64_t data_bytes = file_bytes - data_begin;
  HeaderVisitor visitor(where, data_bytes);
  visit_json(json, kMaxDepth, where, visitor);
  Header header = visitor.take();
  header.data_begin = data_begin;
  // A tensor without elements precedes the one that begins at the same byte.
  std::stable_sort(header.tensors.begin(), header.tensors.end(), [](const auto& a, const auto& b) {
    return std::tie(a.begin, a.bytes) < std::tie(b.begin, b.bytes);
  });
  check_cover(header.tensors, data_bytes, where);
  for (TensorInfo& t : header.tensors) t.begin += data_begin;
  return header;
}

std::string FilePlan::metadata_text() const {
  if (metadata_->empty()) return {};
  std::string text = fmt::format("\"{}\":{{", kMetadataKey);
  for (const auto& [key, value] : *metadata_) {
    if (text.back() != '{') text += ',';
    text += json_string(key, file_) + ':' + json_string(value, file_);
  }
  return text + '}';
}

std::string FilePlan::entry(std::size_t i) const {
  const TensorSpec spec = spec_(i);
  return fmt::format(R"({}:{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})",
                     json_string(spec.name, file_), dtype_name(spec.dtype),
                     fmt::join(spec.shape, ","), i == 0 ? 0 : ends_[i - 1], ends_[i]);
}

FilePlan::FilePlan(std::size_t count, SpecOf spec, const Metadata& metadata, std::string file)
    : spec_(std::move(spec)), metadata_(&metadata), file_(std::move(file)) {
  ends_.reserve(count);
  std::uint64_t data_bytes = 0;
  std::uint64_t length = 2 + metadata_text().size();  // includes the braces
  for (std::size_t i = 0; i < count; ++i) {
    const TensorSpec tensor = spec_(i);
    const auto where = [&] {
      return fmt::format("{}: tensor '{}'", file_, printable(tensor.name));
    };
    if (tensor.name == kMetadataKey)
      fail<ValueError>(ErrorCode::value, where(), "the name is reserved");
    if (std::ranges::any_of(tensor.shape, [](auto extent) { return extent < 0; }))
      fail<ValueError>(ErrorCode::value, where(), "shape {}, must not be negative",
                       shape_text(tensor.shape));
    const std::uint64_t bytes =
        tensor_bytes<ValueError>(tensor.dtype, tensor.shape, ErrorCode::value, where);
    // Half of the range leaves room for the header; file offsets are signed.
    if (data_bytes + bytes > kMaxExtent / 2)
      fail<ValueError>(ErrorCode::value, where(), "ends at byte {}, must fit into a file",
                       data_bytes + bytes);
    ends_.push_back(data_bytes += bytes);
    length += entry(i).size() + (i > 0 || !metadata.empty() ? 1 : 0);
  }
  require_unique();
  data_begin_ = (kLengthBytes + length + kDataAlignment - 1) / kDataAlignment * kDataAlignment;
  length = data_begin_ - kLengthBytes;
  require<ValueError>(length <= kMaxHeaderBytes, "{}: header length {}, must be at most {}", file_,
                      length, kMaxHeaderBytes);
}

/// Compares hashes, which take less memory than names.
void FilePlan::require_unique() const {
  std::vector<std::pair<std::size_t, std::uint32_t>> hashes;
  hashes.reserve(size());
  for (std::size_t i = 0; i < size(); ++i)
    hashes.emplace_back(std::hash<std::string>()(name(i)), static_cast<std::uint32_t>(i));
  std::ranges::sort(hashes);
  std::vector<std::string> twice;
  for (std::size_t begin = 0; begin < hashes.size();) {
    std::vector<std::string> names;  // names with the same hash, nearly always one
    std::size_t end = begin;
    for (; end < hashes.size() && hashes[end].first == hashes[begin].first; ++end)
      names.push_back(name(hashes[end].second));
    std::ranges::sort(names);
    const auto equal = std::ranges::adjacent_find(names);
    if (equal != names.end()) twice.push_back(*equal);
    begin = end;
  }
  if (twice.empty()) return;
  fail<ValueError>(ErrorCode::value,
                   fmt::format("{}: tensor '{}'", file_, printable(std::ranges::min(twice))),
                   "name appears twice, must be unique");
}

void FilePlan::write_start(const std::function<void(std::string_view)>& put) const {
  constexpr std::size_t kPiece = 64 << 10;
  std::string piece;
  const std::uint64_t length = data_begin_ - kLengthBytes;
  for (std::size_t i = 0; i < kLengthBytes; ++i)
    piece += static_cast<char>(length >> (8 * i) & 0xFF);
  piece += '{';
  piece += metadata_text();
  std::uint64_t written = 0;
  for (std::size_t i = 0; i < size(); ++i) {
    if (i > 0 || !metadata_->empty()) piece += ',';
    piece += entry(i);
    if (piece.size() < kPiece) continue;
    put(piece);
    written += piece.size();
    piece.clear();
  }
  piece += '}';
  piece.append(data_begin_ - written - piece.size(), ' ');
  put(piece);
}

std::string_view dtype_name(DType t) { return kTable[static_cast<std::size_t>(t)].name; }

std::optional<DType> dtype_from_name(std::string_view name) {
  for (const Row& row : kTable)
    if (row.name == name) return row.dtype;
  return std::nullopt;
}

int dtype_bits(DType t) { return kTable[static_cast<std::size_t>(t)].bits; }

}  // namespace nvfp4::safetensors
