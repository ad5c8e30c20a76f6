#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

/// GGUF, the container of llama.cpp: what a file says of itself.
/// Source: github.com/ggml-org/ggml, docs/gguf.md; gguf-py, constants.py.
namespace nvfp4::gguf {

inline constexpr std::string_view kMagic = "GGUF";
inline constexpr std::uint32_t kVersion = 3;
inline constexpr std::uint64_t kDefaultAlignment = 32;
inline constexpr std::string_view kAlignmentKey = "general.alignment";
inline constexpr std::string_view kArchitectureKey = "general.architecture";
inline constexpr std::string_view kFileTypeKey = "general.file_type";
inline constexpr std::string_view kQuantizationKey = "general.quantization_version";
inline constexpr std::uint32_t kMostlyNvfp4 = 39, kQuantizationVersion = 2;
/// llama.cpp keeps a tensor's name in 64 bytes, the last of them zero.
inline constexpr std::size_t kMaxName = 63;

/// How the elements of a tensor are stored, by ggml's numbers.
struct Type {
  std::uint32_t id = 0;
  std::string_view name;
  std::int64_t block = 1;   ///< elements of a row that are stored together
  std::uint64_t bytes = 0;  ///< of them
  bool operator==(const Type& other) const { return id == other.id; }
};
/// Null if no such type is known.
const Type* find_type(std::uint32_t id);

inline constexpr std::uint32_t kF32 = 0, kF16 = 1, kI8 = 24, kI16 = 25, kI32 = 26, kI64 = 27,
                               kF64 = 28, kBF16 = 30, kNvfp4 = 40;

/// Of a value in the metadata, by its number in the file.
enum class ValueType : std::uint32_t {
  u8,
  i8,
  u16,
  i16,
  u32,
  i32,
  f32,
  boolean,
  string,
  array,
  u64,
  i64,
  f64
};
std::string_view value_type_name(ValueType type);

/// An array is only checked while a header is read; File::strings() and the like read it.
struct ArrayPlace {
  ValueType type = ValueType::u8;  ///< of an element
  std::uint64_t count = 0;
  std::uint64_t begin = 0;  ///< of the first element, in bytes from the start of the file
};

using Scalar = std::variant<std::uint64_t, std::int64_t, double, bool, std::string, ArrayPlace>;

struct Value {
  ValueType type = ValueType::u32;
  Scalar value;
};

struct Entry {
  std::string key;
  Value value;
  std::uint64_t begin = 0, end = 0;  ///< its type and value, in bytes from the start of the file
};

struct TensorInfo {
  std::string name;
  const Type* type = nullptr;
  std::vector<std::int64_t> shape;  ///< row-major, the reverse of ggml's `ne`
  std::uint64_t begin = 0;          ///< in bytes from the start of the file
  std::uint64_t bytes = 0;

  std::int64_t elements() const;
};

/// What a header says, fully checked.
struct Header {
  std::uint32_t version = kVersion;
  std::uint64_t alignment = kDefaultAlignment;
  std::vector<Entry> entries;
  std::vector<TensorInfo> tensors;  ///< as listed in the file
  std::uint64_t data_begin = 0;

  /// Null if there is none of that key.
  const Value* find(std::string_view key) const;
  /// Null too if it is no string.
  const std::string* text(std::string_view key) const;
  /// Of any integer type, if it fits.
  std::optional<std::int64_t> integer(std::string_view key) const;
};

/// Bytes of `shape` in `type`; empty if the row is no multiple of the type's block, or if the size
/// does not fit 63 bits.
std::optional<std::uint64_t> tensor_bytes(const Type& type, std::span<const std::int64_t> shape);

}  // namespace nvfp4::gguf
