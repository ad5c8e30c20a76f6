#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

/// The safetensors file format: readers use a memory map, writers are atomic.
/// Source: github.com/huggingface/safetensors, README, "Format".
namespace nvfp4::safetensors {

/// The largest size of a header in bytes.
inline constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;

/// The types of elements.
enum class DType : std::uint8_t {
  boolean,
  u8,
  i8,
  f8_e5m2,
  f8_e4m3,
  f8_e8m0,
  f8_e4m3fnuz,
  f8_e5m2fnuz,
  f4,
  f6_e2m3,
  f6_e3m2,
  i16,
  u16,
  f16,
  bf16,
  i32,
  u32,
  f32,
  f64,
  i64,
  u64,
  c64
};
/// Returns the name in the file, such as "BF16" or "F8_E4M3".
std::string_view dtype_name(DType t);
/// Returns the type with this name, or none.
std::optional<DType> dtype_from_name(std::string_view name);
/// Returns the size of an element in bits: 4 for F4, 6 for F6_*, 8, 16, 32 or 64.
int dtype_bits(DType t);

/// The type, shape and position of a tensor in a file.
struct TensorInfo {
  std::string name;
  DType dtype = DType::f32;
  std::vector<std::int64_t> shape;
  std::uint64_t begin = 0;  ///< offset in bytes from the start of the file (not of the data)
  std::uint64_t bytes = 0;
};

using Metadata = std::map<std::string, std::string>;  ///< the header's "__metadata__"

/// The content of a header, after all checks.
struct Header {
  Metadata metadata;
  std::vector<TensorInfo> tensors;  ///< in the order of their bytes in the file, without gaps
  std::uint64_t data_begin = 0;
};

/// Checks and parses the start of a file of `file_bytes` bytes. `start` holds at least the 8 length
/// bytes and the header. Throws FormatError with the name of `file` and, if known, of the tensor.
/// Checked are: length, JSON, keys, dtype, shape, size = shape × dtype, duplicate names and bytes
/// after the last tensor. Ranges must not be negative, overlap, have gaps or exceed the file.
/// Tensors without elements and 0-d scalars are valid.
Header parse_header(std::span<const std::byte> start, std::uint64_t file_bytes,
                    const std::string& file);

/// An open file. It can be moved, not copied. Views of its data are valid while it exists.
class File {
 public:
  /// Opens a file and follows symbolic links. Throws IoError (also for folders, pipes and devices),
  /// FormatError.
  static File open(const std::filesystem::path& path);
  File(File&&) noexcept;
  File& operator=(File&&) noexcept;
  ~File();

  const std::filesystem::path& path() const;
  const Metadata& metadata() const;
  const std::vector<TensorInfo>& tensors() const;
  /// Returns the tensor with this name, or null.
  const TensorInfo* find(std::string_view name) const;

  /// Returns the tensor's bytes in the memory map. If another process truncates the file, an access
  /// to them is a bus error. read() throws instead.
  std::span<const std::byte> data(const TensorInfo& tensor) const;
  /// Copies [offset, offset + out.size()) of the tensor's bytes with pread, from any thread. Throws
  /// IoError if the file is unreadable or has become shorter. Throws ValueError for a range outside
  /// the tensor.
  void read(const TensorInfo& tensor, std::uint64_t offset, std::span<std::byte> out) const;
  /// Hints that read() will need these bytes soon, so that the system reads them in advance.
  /// Returns at once. Throws ValueError as read().
  void will_read(const TensorInfo& tensor, std::uint64_t offset, std::uint64_t bytes) const;
  /// Throws IoError if the path now leads to another file, or if size or modification time differ
  /// from those at open().
  void check_unchanged() const;
  std::uint64_t file_bytes() const;
  /// Returns the modification time at open(), in nanoseconds since the epoch.
  std::int64_t modified_ns() const;

 private:
  struct Impl;
  explicit File(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

/// A tensor to write. Tensors are written in the given order. The data section starts aligned to 64
/// bytes, but the format allows no gaps: the sizes before a tensor determine its alignment. Large
/// and wide elements should come first, odd sizes last.
struct TensorSpec {
  std::string name;
  DType dtype = DType::f32;
  std::vector<std::int64_t> shape;
};

/// A writer for a file whose tensors are known in advance. Bytes can be written in any order, from
/// any thread. Until commit() the file has a temporary name. Without commit() the destructor
/// removes it.
class Writer {
 public:
  /// Creates "<path>.partial" in its final size and writes the header. An old file with that name
  /// is replaced. Throws IoError (also for a full disk). Throws ValueError for names that are
  /// duplicate, not UTF-8 or "__metadata__". Throws it also for negative or overflowing shapes, and
  /// for a header above kMaxHeaderBytes.
  Writer(std::filesystem::path path, const std::vector<TensorSpec>& tensors,
         const Metadata& metadata = {});
  Writer(Writer&&) noexcept;
  Writer& operator=(Writer&&) noexcept;
  ~Writer();

  /// Writes `data` at byte `offset` of tensor `index`. It is thread-safe. Throws IoError, and
  /// ValueError for a range outside the tensor or after commit().
  void write(std::size_t index, std::uint64_t offset, std::span<const std::byte> data);
  /// Syncs the file, renames it to its final name (an existing file is replaced) and syncs the
  /// folder. No write() may run meanwhile. Throws IoError, and ValueError if a byte was never
  /// written.
  void commit();
  std::uint64_t file_bytes() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Writes a small file (JSON, text) atomically: writes "<path>.partial", syncs it, renames it and
/// syncs the folder. Throws IoError.
void write_file_atomically(const std::filesystem::path& path, std::string_view content);

/// The content of "model.safetensors.index.json": the file of each tensor.
struct Index {
  std::map<std::string, std::string> weight_map;
  std::uint64_t total_size = 0;
};
/// Parses an index. Throws FormatError for invalid JSON or keys, duplicate names, and a file name
/// that is absolute, has a folder part or "..". Unknown keys are ignored; a missing total_size is
/// 0.
Index parse_index(std::string_view json, const std::string& file);
/// Returns the index in Hugging Face's style: sorted keys, two spaces, ASCII, a newline at the end.
std::string index_json(const Index& index);

}  // namespace nvfp4::safetensors
