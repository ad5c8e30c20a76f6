#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/gguf/format.h"
#include "checkpoint/io/planned_file.h"
#include "checkpoint/io/posix_file.h"

namespace nvfp4::gguf {

/// Copies the bytes at `offset` of a file. The range is always inside the file.
using ReadAt = std::function<void(std::uint64_t offset, std::span<std::byte> out)>;

/// Limits above those of real files. Larger values are rejected before memory is allocated for
/// them.
inline constexpr std::uint64_t kMaxHeaderBytes = std::uint64_t{1} << 30;
/// Limit of one text, and of all texts together.
inline constexpr std::uint64_t kMaxTextBytes = std::uint64_t{64} << 20;
inline constexpr std::uint64_t kMaxKeyBytes = 65535;
inline constexpr std::uint64_t kMaxNameBytes = 1024;
inline constexpr std::uint64_t kMaxEntries = 1 << 16, kMaxTensors = 1 << 22;
inline constexpr int kMaxDimensions = 4, kMaxNesting = 4;

/// Reads and checks the header of a file of `file_bytes` bytes. It checks magic, version, counts,
/// lengths, types, nesting, duplicate keys and names, UTF-8 of both, and alignment. Shapes must fit
/// their type and 63 bits; offsets must be aligned, inside the file and without overlap. Throws
/// FormatError with `file`, the key or tensor, the value and the rule. Throws UnsupportedError for
/// big-endian files.
Header parse_header(const ReadAt& read, std::uint64_t file_bytes, const std::string& file);

/// Returns the strings of an array that parse_header() has checked.
std::vector<std::string> read_strings(const ReadAt& read, std::uint64_t file_bytes,
                                      const ArrayPlace& place, const std::string& file);

/// A value to write: a scalar of a type, or an array with elements of one type.
struct NewValue {
  ValueType type = ValueType::u32;
  Scalar value = {};
  ValueType element = ValueType::u32;
  std::vector<std::string> strings = {};   ///< elements of an array of strings
  std::vector<std::int64_t> numbers = {};  ///< elements of an array of integers or booleans
  std::vector<double> reals = {};          ///< elements of an array of floats
  std::string raw = {};  ///< type and value as bytes of another file; replaces all other members
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

/// The start of a file to write, and the places of its tensors.
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
    start = std::string();  // it may hold a tokenizer and a hundred bytes for each tensor
  }
};

/// Lays out a file. Throws ValueError with a text that starts with `file`.
FilePlan plan_file(const std::vector<NewEntry>& entries, const std::vector<TensorSpec>& tensors,
                   const std::string& file);

/// An open GGUF file. Move-only.
class File {
 public:
  /// Opens a file and follows symlinks. Throws IoError, FormatError, UnsupportedError.
  static File open(const std::filesystem::path& path);

  const InputFile& input() const { return input_; }
  const std::filesystem::path& path() const { return input_.path(); }
  const Header& header() const { return header_; }
  /// Returns the tensor with this name, or null.
  const TensorInfo* find(std::string_view name) const;
  /// Copies [offset, offset + out.size()) of the tensor's bytes. Thread-safe. Throws IoError.
  void read(const TensorInfo& tensor, std::uint64_t offset, std::span<std::byte> out) const {
    input_.read(tensor.begin + offset, out);
  }
  /// Returns type and value of an entry as bytes of the file. Throws IoError.
  std::string raw(const Entry& entry) const;
  /// Returns the elements of an array of strings, or nothing if the key is not an array. Throws
  /// IoError, and FormatError for more than `most` elements.
  std::vector<std::string> strings(std::string_view key, std::uint64_t most) const;

 private:
  File(InputFile input, Header header);
  InputFile input_;
  Header header_;
  std::vector<std::size_t> by_name_;
};

}  // namespace nvfp4::gguf
