#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

/// The structure of GGUF, the container of llama.cpp.
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

// Keys that only this library writes. llama.cpp ignores them. With them, converting to GGUF and
// back restores the bytes.
/// The original config.json without "quantization_config".
inline constexpr const char* kConfigKey = "nvfp4.config";
/// Names of tensors that were BF16 or F16 and are F32 in the file, as llama.cpp requires.
inline constexpr const char* kBf16Key = "nvfp4.bf16";
inline constexpr const char* kF16Key = "nvfp4.f16";
/// JSON: metadata of the safetensors file, if it has more than {"format": "pt"}.
inline constexpr const char* kMetadataKey = "nvfp4.metadata";

/// The maximum length of a name. llama.cpp stores it in 64 bytes, the last of them zero.
inline constexpr std::size_t kMaxName = 63;

/// A storage type of tensor elements with ggml's number.
struct Type {
  std::uint32_t id = 0;
  std::string_view name;
  std::int64_t block = 1;   ///< elements of a row that are stored together
  std::uint64_t bytes = 0;  ///< size of one such block
  bool operator==(const Type& other) const { return id == other.id; }
};
/// Returns the type with this number, or null.
const Type* find_type(std::uint32_t id);

inline constexpr std::uint32_t kF32 = 0, kF16 = 1, kQ8_0 = 8, kI8 = 24, kI16 = 25, kI32 = 26,
                               kI64 = 27, kF64 = 28, kBF16 = 30, kMxfp4 = 39, kNvfp4 = 40;

/// The type of a metadata value, with its number in the file.
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

/// The place of an array. Reading a header checks an array and stores only few integers;
/// File::strings() reads strings.
struct ArrayPlace {
  ValueType type = ValueType::u8;  ///< type of an element
  std::uint64_t count = 0;
  std::uint64_t begin = 0;  ///< offset of the first element in the file, in bytes
  /// Integers or booleans, if the array has at most kMaxNumbers, as one for each layer.
  std::vector<std::int64_t> numbers = {};
};
inline constexpr std::uint64_t kMaxNumbers = 4096;

using Scalar = std::variant<std::uint64_t, std::int64_t, double, bool, std::string, ArrayPlace>;

struct Value {
  ValueType type = ValueType::u32;
  Scalar value;
};

struct Entry {
  std::string key;
  Value value;
  std::uint64_t begin = 0, end = 0;  ///< offsets of type and value in the file, in bytes
};

struct TensorInfo {
  std::string name;
  const Type* type = nullptr;
  std::vector<std::int64_t> shape;  ///< row-major, the reverse of ggml's `ne`
  std::uint64_t begin = 0;          ///< offset in the file, in bytes
  std::uint64_t bytes = 0;

  std::int64_t elements() const;
};

/// The fully checked header of a file.
struct Header {
  std::uint32_t version = kVersion;
  std::uint64_t alignment = kDefaultAlignment;
  std::vector<Entry> entries;
  std::vector<TensorInfo> tensors;  ///< in the order of the file
  std::uint64_t data_begin = 0;

  /// Returns the value of a key, or null.
  const Value* find(std::string_view key) const;
  /// Returns the string of a key, or null if there is none.
  const std::string* text(std::string_view key) const;
  /// Returns an integer of any type or, with `layer`, the element of an array of integers. Null if
  /// there is none or it exceeds 63 bits.
  std::optional<std::int64_t> integer(std::string_view key,
                                      std::optional<std::size_t> layer = {}) const;
};

/// Returns the size of `shape` in `type`. Null if rows are not a multiple of the type's block, or
/// if the size exceeds 63 bits.
std::optional<std::uint64_t> tensor_bytes(const Type& type, std::span<const std::int64_t> shape);

}  // namespace nvfp4::gguf
