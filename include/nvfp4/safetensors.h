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

/// The safetensors file format: reading by memory map, writing atomically.
/// Source: github.com/huggingface/safetensors, README, "Format".
namespace nvfp4::safetensors {

inline constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;

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
std::string_view dtype_name(DType t);  ///< as in the file: "BF16", "F8_E4M3", ...
std::optional<DType> dtype_from_name(std::string_view name);
int dtype_bits(DType t);  ///< of one element: 4 for F4, 6 for F6_*, 8, 16, 32 or 64

struct TensorInfo {
  std::string name;
  DType dtype = DType::f32;
  std::vector<std::int64_t> shape;
  std::uint64_t begin = 0;  ///< in bytes from the start of the file (not of the data section)
  std::uint64_t bytes = 0;
};

using Metadata = std::map<std::string, std::string>;  ///< the header's "__metadata__"

/// What a header says, fully checked.
struct Header {
  Metadata metadata;
  std::vector<TensorInfo> tensors;  ///< in the order of their bytes in the file; they leave no gap
  std::uint64_t data_begin = 0;
};

/// Checks and parses the start of a file of `file_bytes` bytes; `start` holds at least the 8 length
/// bytes and the header. Throws FormatError that names `file` and, where there is one, the tensor:
/// length, JSON, keys, dtype, shape, negative, overlapping, gapped or out-of-file ranges,
/// size != shape × dtype, duplicate names, bytes after the last tensor. Tensors without elements
/// and 0-d scalars are valid.
Header parse_header(std::span<const std::byte> start, std::uint64_t file_bytes,
                    const std::string& file);

/// An open file. Move-only; views of its data die with it.
class File {
 public:
  /// Follows symlinks. Throws IoError (folders, pipes and devices too), FormatError.
  static File open(const std::filesystem::path& path);
  File(File&&) noexcept;
  File& operator=(File&&) noexcept;
  ~File();

  const std::filesystem::path& path() const;
  const Metadata& metadata() const;
  const std::vector<TensorInfo>& tensors() const;
  /// Null if there is none of that name.
  const TensorInfo* find(std::string_view name) const;

  /// The tensor's bytes in the memory map. If another process truncates the file, touching them
  /// is a bus error; read() is for those who must survive that.
  std::span<const std::byte> data(const TensorInfo& tensor) const;
  /// Copies [offset, offset + out.size()) of the tensor's bytes by pread, from any thread.
  /// Throws IoError if the file is unreadable or has become shorter, ValueError for a range
  /// outside the tensor.
  void read(const TensorInfo& tensor, std::uint64_t offset, std::span<std::byte> out) const;
  /// A hint that read() is asked for these bytes soon, so that they come from the disk meanwhile.
  /// Returns before they do. Throws ValueError as read().
  void will_read(const TensorInfo& tensor, std::uint64_t offset, std::uint64_t bytes) const;
  /// Throws IoError if the path now leads to another file, or size or modification time are no
  /// longer those seen by open().
  void check_unchanged() const;
  std::uint64_t file_bytes() const;
  /// Modification time in nanoseconds since the epoch, as seen by open().
  std::int64_t modified_ns() const;

 private:
  struct Impl;
  explicit File(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

/// Describes a tensor to write. The order given is the order in the file. The data section starts
/// 64-byte aligned, but the format allows no gap between tensors: a tensor is as aligned as the sum
/// of the sizes before it. Put large and wide elements first, odd sizes last.
struct TensorSpec {
  std::string name;
  DType dtype = DType::f32;
  std::vector<std::int64_t> shape;
};

/// Writes a file whose tensors are known beforehand and whose bytes come in any order, from any
/// thread. Until commit() the file has a temporary name; without commit() the destructor removes
/// it.
class Writer {
 public:
  /// Creates "<path>.partial", of its final size, and writes the header. A stale file of that name
  /// is replaced. Throws IoError (disk full too), ValueError for names that are duplicate, not
  /// UTF-8 or "__metadata__", negative or overflowing shapes, a header above kMaxHeaderBytes.
  Writer(std::filesystem::path path, const std::vector<TensorSpec>& tensors,
         const Metadata& metadata = {});
  Writer(Writer&&) noexcept;
  Writer& operator=(Writer&&) noexcept;
  ~Writer();

  /// Writes `data` at byte `offset` of tensor `index`. Thread-safe. Throws IoError, and ValueError
  /// for a range outside the tensor or after commit().
  void write(std::size_t index, std::uint64_t offset, std::span<const std::byte> data);
  /// fsync, rename to the final name (replacing a file that is there), fsync of the folder. No
  /// write() may run meanwhile. Throws IoError, and ValueError if a byte was never written.
  void commit();
  std::uint64_t file_bytes() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Writes a small file (JSON, text) atomically: "<path>.partial", fsync, rename, fsync of the
/// folder. Throws IoError.
void write_file_atomically(const std::filesystem::path& path, std::string_view content);

/// "model.safetensors.index.json": which file holds which tensor.
struct Index {
  std::map<std::string, std::string> weight_map;
  std::uint64_t total_size = 0;
};
/// Throws FormatError: JSON, keys, duplicate names, a file name that is absolute, has a folder part
/// or "..". Unknown keys are passed over; a missing total_size is 0.
Index parse_index(std::string_view json, const std::string& file);
/// As Hugging Face writes it: sorted keys, two spaces, ASCII, a newline at the end.
std::string index_json(const Index& index);

}  // namespace nvfp4::safetensors
