#include "checkpoint/gguf/header.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <numeric>
#include <set>
#include <string_view>

#include "core/printable.h"
#include "core/require.h"

namespace nvfp4::gguf {
namespace {

/// Numbers are copied without a change of byte order.
static_assert(std::endian::native == std::endian::little);

/// Returns the size of a value in bytes, or 0 for strings and arrays.
std::uint64_t size_of(ValueType type) {
  switch (type) {
    case ValueType::u8:
    case ValueType::i8:
    case ValueType::boolean:
      return 1;
    case ValueType::u16:
    case ValueType::i16:
      return 2;
    case ValueType::u32:
    case ValueType::i32:
    case ValueType::f32:
      return 4;
    case ValueType::u64:
    case ValueType::i64:
    case ValueType::f64:
      return 8;
    default:
      return 0;
  }
}

/// A buffered forward reader that never reads beyond `end`.
class Cursor {
 public:
  Cursor(const ReadAt& read, std::uint64_t at, std::uint64_t end, const std::string& file)
      : read_(read), at_(at), end_(end), file_(file) {}

  std::uint64_t at() const { return at_; }
  std::uint64_t left() const { return end_ - at_; }
  /// Sets the name of the current item for messages.
  void name(std::string context) { context_ = std::move(context); }

  template <class... Args>
  [[noreturn]] void fail(fmt::format_string<Args...> message, Args&&... args) const {
    fail(ErrorCode::format, message, std::forward<Args>(args)...);
  }
  template <class... Args>
  [[noreturn]] void fail(ErrorCode code, fmt::format_string<Args...> message,
                         Args&&... args) const {
    throw FormatError(
        fmt::format("{}: {}{}", file_, context_, fmt::format(message, std::forward<Args>(args)...)),
        code);
  }

  template <class T>
  T number(const char* what) {
    T value;
    take(what, std::as_writable_bytes(std::span(&value, 1)));
    return value;
  }

  std::string text(const char* what, std::uint64_t most) {
    const auto bytes = number<std::uint64_t>(what);
    if (bytes > most) fail("{} of {} bytes, at most {}", what, bytes, most);
    need(what, bytes);
    std::string out(bytes, '\0');
    take(what, std::as_writable_bytes(std::span(out)));
    return out;
  }

  void skip_text(const char* what, std::uint64_t most) {
    const auto bytes = number<std::uint64_t>(what);
    if (bytes > most) fail("{} of {} bytes, at most {}", what, bytes, most);
    skip(what, bytes);
  }

  void skip(const char* what, std::uint64_t bytes) {
    need(what, bytes);
    at_ += bytes;
  }

  void need(const char* what, std::uint64_t bytes) const {
    if (bytes > left())
      fail(ErrorCode::cut_short, "{} of {} bytes, but the file ends in {}", what, bytes, left());
  }

 private:
  void take(const char* what, std::span<std::byte> out) {
    need(what, out.size());
    while (!out.empty()) {
      if (at_ < first_ || at_ >= first_ + filled_) fill();
      const std::size_t n = std::min<std::size_t>(out.size(), first_ + filled_ - at_);
      std::memcpy(out.data(), buffer_ + (at_ - first_), n);
      at_ += n;
      out = out.subspan(n);
    }
  }

  void fill() {
    first_ = at_;
    filled_ = std::min<std::uint64_t>(sizeof buffer_, left());
    read_(first_, std::as_writable_bytes(std::span(buffer_, filled_)));
  }

  const ReadAt& read_;
  std::uint64_t at_, end_;
  std::uint64_t first_ = 0, filled_ = 0;
  const std::string& file_;
  std::string context_;
  char buffer_[1 << 14];
};

class Parser {
 public:
  Parser(const ReadAt& read, std::uint64_t file_bytes, const std::string& file)
      : in_(read, 0, std::min(file_bytes, kMaxHeaderBytes), file), file_bytes_(file_bytes) {}

  Header run() {
    read_start();
    const auto tensors = in_.number<std::uint64_t>("number of tensors");
    const auto entries = in_.number<std::uint64_t>("number of keys");
    if (tensors > kMaxTensors) in_.fail("{} tensors, at most {}", tensors, kMaxTensors);
    if (entries > kMaxEntries) in_.fail("{} keys, at most {}", entries, kMaxEntries);
    for (std::uint64_t i = 0; i < entries; ++i) read_entry(i);
    find_alignment();
    for (std::uint64_t i = 0; i < tensors; ++i) read_tensor(i);
    in_.name({});
    place_tensors();
    return std::move(header_);
  }

 private:
  void read_start() {
    char magic[4];
    for (char& c : magic) c = in_.number<char>("magic");
    if (std::string_view(magic, 4) != kMagic)
      in_.fail("starts with '{}', must be '{}'", printable({magic, 4}), kMagic);
    header_.version = in_.number<std::uint32_t>("version");
    if (header_.version != 2 && header_.version != 3) {
      const std::uint32_t swapped = __builtin_bswap32(header_.version);
      if (swapped == 2 || swapped == 3)
        throw UnsupportedError(context_free("big-endian, must be little-endian"));
      in_.fail("version = {}, must be 2 or 3", header_.version);
    }
  }

  std::string context_free(const std::string& text) const {
    try {
      in_.fail("{}", text);
    } catch (const FormatError& e) {
      return e.what();
    }
  }

  void read_entry(std::uint64_t i) {
    in_.name(fmt::format("key {}: ", i));
    std::string key = in_.text("key", kMaxKeyBytes);
    if (key.empty() || !is_utf8(key) || key.find('\0') != std::string::npos)
      in_.fail("'{}', must be UTF-8, not empty", printable(key));
    in_.name(fmt::format("key '{}': ", printable(key)));
    if (!keys_.insert(key).second) in_.fail("is there twice");
    const std::uint64_t begin = in_.at();
    const ValueType type = read_type();
    take_room(key.size());
    Scalar value = read_value(type);
    header_.entries.push_back({std::move(key), {type, std::move(value)}, begin, in_.at()});
  }

  /// Keys and texts are stored, so their total size is limited.
  void take_room(std::uint64_t bytes) {
    if (bytes > room_) in_.fail("keys and texts of more than {} bytes", kMaxTextBytes);
    room_ -= bytes;
  }

  ValueType read_type() {
    const auto type = in_.number<std::uint32_t>("type");
    if (type > static_cast<std::uint32_t>(ValueType::f64))
      in_.fail("type = {}, must be at most {}", type, static_cast<std::uint32_t>(ValueType::f64));
    return static_cast<ValueType>(type);
  }

  template <class T>
  std::uint64_t number() {
    return in_.number<T>("value");
  }

  Scalar read_value(ValueType type) {
    switch (type) {
      case ValueType::u8:
        return number<std::uint8_t>();
      case ValueType::u16:
        return number<std::uint16_t>();
      case ValueType::u32:
        return number<std::uint32_t>();
      case ValueType::u64:
        return number<std::uint64_t>();
      case ValueType::i8:
        return std::int64_t{in_.number<std::int8_t>("value")};
      case ValueType::i16:
        return std::int64_t{in_.number<std::int16_t>("value")};
      case ValueType::i32:
        return std::int64_t{in_.number<std::int32_t>("value")};
      case ValueType::i64:
        return in_.number<std::int64_t>("value");
      case ValueType::f32:
        return static_cast<double>(in_.number<float>("value"));
      case ValueType::f64:
        return in_.number<double>("value");
      case ValueType::boolean:
        return read_bool();
      case ValueType::string:
        return read_text();
      case ValueType::array:
        break;
    }
    return read_array(1);
  }

  std::string read_text() {
    std::string text = in_.text("value", room_);
    take_room(text.size());
    return text;
  }

  bool read_bool() {
    const auto value = in_.number<std::uint8_t>("value");
    if (value > 1) in_.fail("a bool of {}, must be 0 or 1", value);
    return value == 1;
  }

  /// Skips the elements, because the vocabulary is long and most readers do not need it.
  ArrayPlace read_array(int depth) {
    if (depth > kMaxNesting) in_.fail("arrays nested {} deep, at most {}", depth, kMaxNesting);
    ArrayPlace place;
    place.type = read_type();
    place.count = in_.number<std::uint64_t>("length of the array");
    // Every element has at least one byte, so a huge count fails here and not after a long loop.
    if (place.count > in_.left())
      in_.fail("an array of {} elements, but the file ends in {} bytes", place.count, in_.left());
    place.begin = in_.at();
    const bool keeps = place.count <= kMaxNumbers;
    const auto keep = [&](std::int64_t number) {
      take_room(sizeof number);
      place.numbers.push_back(number);
    };
    if (place.type == ValueType::boolean) {
      for (std::uint64_t i = 0; i < place.count; ++i) {
        const bool value = read_bool();
        if (keeps) keep(value);
      }
    } else if (keeps && (place.type == ValueType::u32 || place.type == ValueType::i32)) {
      in_.need("an array", 4 * place.count);
      for (std::uint64_t i = 0; i < place.count; ++i)
        keep(place.type == ValueType::u32 ? std::int64_t{in_.number<std::uint32_t>("value")}
                                          : in_.number<std::int32_t>("value"));
    } else if (place.type == ValueType::string) {
      for (std::uint64_t i = 0; i < place.count; ++i)
        in_.skip_text("a string in an array", kMaxTextBytes);
    } else if (place.type == ValueType::array) {
      for (std::uint64_t i = 0; i < place.count; ++i) read_array(depth + 1);
    } else {
      std::uint64_t bytes = 0;
      if (__builtin_mul_overflow(place.count, size_of(place.type), &bytes))
        in_.fail("an array of {} elements, but the file ends in {} bytes", place.count, in_.left());
      in_.skip("an array", bytes);
    }
    return place;
  }

  void find_alignment() {
    const Value* value = header_.find(kAlignmentKey);
    if (value == nullptr) return;
    in_.name(fmt::format("key '{}': ", kAlignmentKey));
    if (value->type != ValueType::u32)
      in_.fail("is a {}, must be a u32", value_type_name(value->type));
    header_.alignment = std::get<std::uint64_t>(value->value);
    if (!std::has_single_bit(header_.alignment))
      in_.fail("= {}, must be a power of two", header_.alignment);
  }

  void read_tensor(std::uint64_t i) {
    in_.name(fmt::format("tensor {}: ", i));
    TensorInfo t;
    t.name = in_.text("name", kMaxNameBytes);
    if (t.name.empty() || !is_utf8(t.name) || t.name.find('\0') != std::string::npos)
      in_.fail("'{}', must be UTF-8, not empty", printable(t.name));
    in_.name(fmt::format("tensor '{}': ", printable(t.name)));
    if (!names_.insert(t.name).second) in_.fail("is there twice");
    const auto dimensions = in_.number<std::uint32_t>("number of dimensions");
    if (dimensions > static_cast<std::uint32_t>(kMaxDimensions))
      in_.fail("{} dimensions, at most {}", dimensions, kMaxDimensions);
    for (std::uint32_t d = 0; d < dimensions; ++d) {
      const auto extent = in_.number<std::int64_t>("dimension");
      if (extent < 0) in_.fail("dimension {} = {}, must not be negative", d, extent);
      t.shape.insert(t.shape.begin(), extent);
    }
    const auto type = in_.number<std::uint32_t>("type");
    t.type = find_type(type);
    if (t.type == nullptr) in_.fail("type = {}, which is no type that is known", type);
    const auto bytes = tensor_bytes(*t.type, t.shape);
    if (!bytes)
      in_.fail("[{}] of {}: rows must be a multiple of {}, and the size fit 63 bits",
               fmt::join(t.shape, ", "), t.type->name, t.type->block);
    t.bytes = *bytes;
    t.begin = in_.number<std::uint64_t>("offset");
    if (t.begin % header_.alignment != 0)
      in_.fail("offset {}, must be a multiple of {}", t.begin, header_.alignment);
    header_.tensors.push_back(std::move(t));
  }

  /// Checks the ranges of the tensors, and makes their offsets relative to the file.
  void place_tensors() {
    const std::uint64_t mask = header_.alignment - 1;
    header_.data_begin = (in_.at() + mask) & ~mask;
    for (TensorInfo& t : header_.tensors) {
      in_.name(fmt::format("tensor '{}': ", printable(t.name)));
      const std::uint64_t room =
          file_bytes_ < header_.data_begin ? 0 : file_bytes_ - header_.data_begin;
      if (t.begin > room || t.bytes > room - t.begin)
        in_.fail(ErrorCode::cut_short, "bytes {} to {} of the data, but the file has {}", t.begin,
                 static_cast<double>(t.begin) + static_cast<double>(t.bytes), room);
      t.begin += header_.data_begin;
    }
    std::vector<const TensorInfo*> order;
    for (const TensorInfo& t : header_.tensors)
      if (t.bytes != 0) order.push_back(&t);
    std::ranges::sort(order, {}, &TensorInfo::begin);
    for (std::size_t i = 1; i < order.size(); ++i) {
      in_.name(fmt::format("tensor '{}': ", printable(order[i]->name)));
      if (order[i]->begin < order[i - 1]->begin + order[i - 1]->bytes)
        in_.fail(ErrorCode::tensor_ranges, "overlaps '{}'", printable(order[i - 1]->name));
    }
  }

  Cursor in_;
  std::uint64_t file_bytes_;
  std::uint64_t room_ = kMaxTextBytes;
  Header header_;
  std::set<std::string> keys_, names_;
};

ReadAt reader_of(const InputFile& input) {
  return [&input](std::uint64_t offset, std::span<std::byte> out) { input.read(offset, out); };
}

std::string name_of(const InputFile& input) { return printable(input.path().string(), 4096); }

}  // namespace

Header parse_header(const ReadAt& read, std::uint64_t file_bytes, const std::string& file) {
  return Parser(read, file_bytes, file).run();
}

std::vector<std::string> read_strings(const ReadAt& read, std::uint64_t file_bytes,
                                      const ArrayPlace& place, const std::string& file) {
  Cursor in(read, place.begin, std::min(file_bytes, kMaxHeaderBytes), file);
  std::vector<std::string> out;
  if (place.type != ValueType::string) return out;
  for (std::uint64_t i = 0; i < place.count; ++i) out.push_back(in.text("a string", kMaxTextBytes));
  return out;
}

File::File(InputFile input, Header header) : input_(std::move(input)), header_(std::move(header)) {
  by_name_.resize(header_.tensors.size());
  std::iota(by_name_.begin(), by_name_.end(), std::size_t{0});
  std::ranges::sort(by_name_, {}, [this](std::size_t i) -> const std::string& {
    return header_.tensors[i].name;
  });
}

File File::open(const std::filesystem::path& path) {
  InputFile input(path);
  Header header = parse_header(reader_of(input), input.bytes(), name_of(input));
  return {std::move(input), std::move(header)};
}

const TensorInfo* File::find(std::string_view name) const {
  const auto name_at = [this](std::size_t i) -> std::string_view {
    return header_.tensors[i].name;
  };
  const auto it = std::ranges::lower_bound(by_name_, name, {}, name_at);
  return it == by_name_.end() || name_at(*it) != name ? nullptr : &header_.tensors[*it];
}

std::string File::raw(const Entry& entry) const {
  std::string bytes(entry.end - entry.begin, '\0');
  input_.read(entry.begin, std::as_writable_bytes(std::span(bytes)));
  return bytes;
}

std::vector<std::string> File::strings(std::string_view key, std::uint64_t most) const {
  const Value* value = header_.find(key);
  const auto* place = value == nullptr ? nullptr : std::get_if<ArrayPlace>(&value->value);
  if (place == nullptr) return {};
  require<FormatError>(place->count <= most, "{}: key '{}': an array of {}, at most {}",
                       name_of(input_), printable(key), place->count, most);
  return read_strings(reader_of(input_), input_.bytes(), *place, name_of(input_));
}

}  // namespace nvfp4::gguf
