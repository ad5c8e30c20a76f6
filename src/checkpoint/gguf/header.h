#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/gguf/format.h"
#include "checkpoint/io/planned_file.h"

namespace nvfp4::gguf {

/// Copies the bytes that start at `offset` of a file. Never asked for what lies outside.
using ReadAt = std::function<void(std::uint64_t offset, std::span<std::byte> out)>;

/// Limits that no real file reaches; what lies beyond is refused before memory is taken for it.
inline constexpr std::uint64_t kMaxHeaderBytes = std::uint64_t{1} << 30;
inline constexpr std::uint64_t kMaxTextBytes = std::uint64_t{64} << 20;  ///< also of all together
inline constexpr std::uint64_t kMaxKeyBytes = 65535;
inline constexpr std::uint64_t kMaxNameBytes = 1024;
inline constexpr std::uint64_t kMaxEntries = 1 << 16, kMaxTensors = 1 << 22;
inline constexpr int kMaxDimensions = 4, kMaxNesting = 4;

/// Reads the header of a file of `file_bytes` bytes. Throws FormatError that names `file`, the key
/// or tensor, the value and the rule: magic, version, counts, lengths, types, nesting, duplicate
/// keys and names, UTF-8 of both, alignment, shapes that do not fit their type or 63 bits, offsets
/// that are not aligned, overlap, or lead outside. UnsupportedError for big-endian files.
Header parse_header(const ReadAt& read, std::uint64_t file_bytes, const std::string& file);

/// The strings of an array that a header has checked.
std::vector<std::string> read_strings(const ReadAt& read, std::uint64_t file_bytes,
                                      const ArrayPlace& place, const std::string& file);

/// A value to write: scalars by their type, or an array of one type.
struct NewValue {
  ValueType type = ValueType::u32;
  Scalar value = {};
  ValueType element = ValueType::u32;
  std::vector<std::string> strings = {};   ///< elements of an array of strings
  std::vector<std::int64_t> numbers = {};  ///< elements of an array of integers or booleans
  std::vector<double> reals = {};          ///< elements of an array of floats
  std::string raw = {};  ///< type and value as another file has them, in the place of all that
};

NewValue new_text(std::string text);
NewValue new_u32(std::uint64_t value);
NewValue new_f32(double value);
NewValue new_bool(bool value);
NewValue new_strings(std::vector<std::string> strings);
NewValue new_i32s(std::vector<std::int64_t> numbers);

struct NewEntry {
  std::string key;
  NewValue value;
};

struct TensorSpec {
  std::string name;
  const Type* type = nullptr;
  std::vector<std::int64_t> shape;  ///< row-major
};

/// The start of a file to write, and where its tensors lie.
struct FilePlan {
  std::string start;                ///< everything before the data
  std::vector<TensorInfo> tensors;  ///< in the order given
  std::uint64_t bytes = 0;

  std::size_t size() const { return tensors.size(); }
  const std::string& name(std::size_t i) const { return tensors[i].name; }
  std::uint64_t begin(std::size_t i) const { return tensors[i].begin; }
  std::uint64_t end(std::size_t i) const { return tensors[i].begin + tensors[i].bytes; }
  std::uint64_t file_bytes() const { return bytes; }
  template <class Put>
  void write_start(const Put& put) {
    put(start);
    start = std::string();  // there may be a hundred bytes for each tensor, and a tokenizer
  }
};

/// Throws ValueError that starts with `file`.
FilePlan plan_file(const std::vector<NewEntry>& entries, const std::vector<TensorSpec>& tensors,
                   const std::string& file);

/// Writes a file whose tensors are known beforehand and whose bytes come in any order, from any
/// thread; the memory for it does not grow with the tensors. Until commit() the file has a
/// temporary name; without commit() the destructor removes it.
class Writer : public PlannedFile<FilePlan> {
 public:
  /// Throws IoError, and ValueError for names or keys that are duplicate, not UTF-8 or too long,
  /// and shapes that do not fit their type.
  Writer(const std::filesystem::path& path, const std::vector<NewEntry>& entries,
         const std::vector<TensorSpec>& tensors);
};

}  // namespace nvfp4::gguf
