#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "checkpoint/gguf/header.h"
#include "core/printable.h"
#include "core/require.h"

namespace nvfp4::gguf {
namespace {

class Bytes {
 public:
  template <class T>
  void number(T value) {
    const auto* p = reinterpret_cast<const char*>(&value);
    out_.append(p, sizeof value);
  }
  void text(std::string_view text) {
    number(std::uint64_t{text.size()});
    out_ += text;
  }
  void type(ValueType type) { number(static_cast<std::uint32_t>(type)); }
  void integer(ValueType type, std::uint64_t value) {
    switch (type) {
      case ValueType::u8:
      case ValueType::i8:
      case ValueType::boolean:
        return number(static_cast<std::uint8_t>(value));
      case ValueType::u16:
      case ValueType::i16:
        return number(static_cast<std::uint16_t>(value));
      case ValueType::u64:
      case ValueType::i64:
        return number(value);
      default:
        return number(static_cast<std::uint32_t>(value));
    }
  }
  void real(ValueType type, double value) {
    if (type == ValueType::f64) return number(value);
    number(static_cast<float>(value));
  }
  void pad(std::uint64_t alignment) {
    out_.resize((out_.size() + alignment - 1) / alignment * alignment);
  }
  std::string& str() { return out_; }

 private:
  std::string out_;
};

void add_value(Bytes& out, const NewValue& v) {
  if (!v.raw.empty()) {
    out.str() += v.raw;
    return;
  }
  out.type(v.type);
  if (v.type == ValueType::array) {
    out.type(v.element);
    out.number(std::uint64_t{v.strings.size() + v.numbers.size() + v.reals.size()});
    for (const std::string& s : v.strings) out.text(s);
    for (const std::int64_t n : v.numbers) out.integer(v.element, static_cast<std::uint64_t>(n));
    for (const double r : v.reals) out.real(v.element, r);
  } else if (const auto* text = std::get_if<std::string>(&v.value)) {
    out.text(*text);
  } else if (const auto* real = std::get_if<double>(&v.value)) {
    out.real(v.type, *real);
  } else if (const auto* flag = std::get_if<bool>(&v.value)) {
    out.integer(v.type, *flag);
  } else if (const auto* u = std::get_if<std::uint64_t>(&v.value)) {
    out.integer(v.type, *u);
  } else if (const auto* i = std::get_if<std::int64_t>(&v.value)) {
    out.integer(v.type, static_cast<std::uint64_t>(*i));
  }
}

void check_name(const std::string& file, const char* what, const std::string& name,
                std::size_t most, std::set<std::string_view>& seen) {
  require<ValueError>(
      !name.empty() && name.size() <= most && is_utf8(name) && name.find('\0') == std::string::npos,
      "{}: {} '{}', must be UTF-8 of 1 to {} bytes", file, what, printable(name), most);
  require<ValueError>(seen.insert(name).second, "{}: {} '{}' is there twice", file, what,
                      printable(name));
}

std::uint64_t bytes_of(const TensorSpec& spec, const std::string& file) {
  const bool good = spec.type != nullptr && spec.shape.size() <= kMaxDimensions &&
                    std::ranges::all_of(spec.shape, [](std::int64_t d) { return d >= 0; });
  if (good)
    if (const auto bytes = tensor_bytes(*spec.type, spec.shape)) return *bytes;
  throw ValueError(fmt::format(
      "{}: tensor '{}': [{}] of {}, must have at most {} dimensions and rows of a multiple of the "
      "type's block",
      file, printable(spec.name), fmt::join(spec.shape, ", "),
      spec.type ? spec.type->name : "no type", kMaxDimensions));
}

}  // namespace

FilePlan plan_file(const std::vector<NewEntry>& entries, const std::vector<TensorSpec>& specs,
                   const std::string& file) {
  FilePlan plan;
  std::set<std::string_view> keys, names;
  Bytes out;
  out.str() = kMagic;
  out.number(kVersion);
  out.number(std::uint64_t{specs.size()});
  out.number(std::uint64_t{entries.size()});
  for (const NewEntry& e : entries) {
    check_name(file, "key", e.key, kMaxKeyBytes, keys);
    out.text(e.key);
    add_value(out, e.value);
  }
  std::uint64_t offset = 0;
  for (const TensorSpec& spec : specs) {
    check_name(file, "tensor", spec.name, kMaxName, names);
    const std::uint64_t bytes = bytes_of(spec, file);
    out.text(spec.name);
    out.number(static_cast<std::uint32_t>(spec.shape.size()));
    for (auto d = spec.shape.rbegin(); d != spec.shape.rend(); ++d) out.number(*d);
    out.number(spec.type->id);
    out.number(offset);
    plan.tensors.push_back({spec.name, spec.type, spec.shape, offset, bytes});
    offset += (bytes + kDefaultAlignment - 1) / kDefaultAlignment * kDefaultAlignment;
  }
  out.pad(kDefaultAlignment);
  plan.start = std::move(out.str());
  for (TensorInfo& t : plan.tensors) t.begin += plan.start.size();
  // Loaders map whole tensors with their padding, so the last tensor has padding, too.
  plan.bytes = plan.start.size() + offset;
  return plan;
}

NewValue new_text(std::string text) {
  return {.type = ValueType::string, .value = std::move(text)};
}
NewValue new_u32(std::uint64_t value) { return {.type = ValueType::u32, .value = value}; }
NewValue new_f32(double value) { return {.type = ValueType::f32, .value = value}; }
NewValue new_bool(bool value) { return {.type = ValueType::boolean, .value = value}; }
NewValue new_strings(std::vector<std::string> strings) {
  return {.type = ValueType::array, .element = ValueType::string, .strings = std::move(strings)};
}
NewValue new_i32s(std::vector<std::int64_t> numbers) {
  return {.type = ValueType::array, .element = ValueType::i32, .numbers = std::move(numbers)};
}

}  // namespace nvfp4::gguf
