#include "checkpoint/gguf/format.h"

#include <algorithm>
#include <limits>

namespace nvfp4::gguf {
namespace {

constexpr Type kTypes[] = {
    {0, "F32", 1, 4},         {1, "F16", 1, 2},         {2, "Q4_0", 32, 18},
    {3, "Q4_1", 32, 20},      {6, "Q5_0", 32, 22},      {7, "Q5_1", 32, 24},
    {8, "Q8_0", 32, 34},      {9, "Q8_1", 32, 40},      {10, "Q2_K", 256, 84},
    {11, "Q3_K", 256, 110},   {12, "Q4_K", 256, 144},   {13, "Q5_K", 256, 176},
    {14, "Q6_K", 256, 210},   {15, "Q8_K", 256, 292},   {16, "IQ2_XXS", 256, 66},
    {17, "IQ2_XS", 256, 74},  {18, "IQ3_XXS", 256, 98}, {19, "IQ1_S", 256, 50},
    {20, "IQ4_NL", 32, 18},   {21, "IQ3_S", 256, 110},  {22, "IQ2_S", 256, 82},
    {23, "IQ4_XS", 256, 136}, {24, "I8", 1, 1},         {25, "I16", 1, 2},
    {26, "I32", 1, 4},        {27, "I64", 1, 8},        {28, "F64", 1, 8},
    {29, "IQ1_M", 256, 56},   {30, "BF16", 1, 2},       {34, "TQ1_0", 256, 54},
    {35, "TQ2_0", 256, 66},   {39, "MXFP4", 32, 17},    {40, "NVFP4", 64, 36},
    {41, "Q1_0", 128, 18},
};

constexpr std::uint64_t kMaxBytes = std::numeric_limits<std::int64_t>::max();

}  // namespace

const Type* find_type(std::uint32_t id) {
  const auto* const found = std::ranges::find(kTypes, id, &Type::id);
  return found == std::end(kTypes) ? nullptr : found;
}

std::string_view value_type_name(ValueType type) {
  constexpr std::array<std::string_view, 13> names = {"u8",  "i8",  "u16",  "i16",    "u32",
                                                      "i32", "f32", "bool", "string", "array",
                                                      "u64", "i64", "f64"};
  return names[static_cast<std::size_t>(type)];
}

std::int64_t TensorInfo::elements() const {
  std::int64_t n = 1;
  for (const std::int64_t d : shape) n *= d;
  return n;
}

const Value* Header::find(std::string_view key) const {
  const auto it = std::ranges::find(entries, key, &Entry::key);
  return it == entries.end() ? nullptr : &it->value;
}

const std::string* Header::text(std::string_view key) const {
  const Value* value = find(key);
  return value == nullptr ? nullptr : std::get_if<std::string>(&value->value);
}

std::optional<std::int64_t> Header::integer(std::string_view key,
                                            std::optional<std::size_t> layer) const {
  const Value* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (const auto* array = std::get_if<ArrayPlace>(&value->value))
    return layer && *layer < array->numbers.size() ? std::optional(array->numbers[*layer])
                                                   : std::nullopt;
  if (const auto* i = std::get_if<std::int64_t>(&value->value)) return *i;
  const auto* u = std::get_if<std::uint64_t>(&value->value);
  if (u == nullptr || *u > kMaxBytes) return std::nullopt;
  return static_cast<std::int64_t>(*u);
}

std::optional<std::uint64_t> tensor_bytes(const Type& type, std::span<const std::int64_t> shape) {
  if (!shape.empty() && shape.back() % type.block != 0) return std::nullopt;
  // All partial products must fit, even if another extent is zero.
  std::uint64_t size = type.bytes;
  bool empty = false;
  for (std::size_t i = shape.size(); i-- > 0;) {
    const bool row = i + 1 == shape.size();
    const auto extent = static_cast<std::uint64_t>(row ? shape[i] / type.block : shape[i]);
    empty |= extent == 0;
    if (__builtin_mul_overflow(size, std::max<std::uint64_t>(extent, 1), &size) ||
        size > kMaxBytes / static_cast<std::uint64_t>(type.block))
      return std::nullopt;
  }
  if (shape.empty() && type.block != 1) return std::nullopt;
  return empty ? 0 : size;
}

}  // namespace nvfp4::gguf
