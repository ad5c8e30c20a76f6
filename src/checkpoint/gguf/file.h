#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "checkpoint/gguf/header.h"
#include "checkpoint/io/posix_file.h"

namespace nvfp4::gguf {

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
