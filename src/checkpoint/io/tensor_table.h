#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "checkpoint/io/tensor_file.h"

namespace nvfp4::checkpoint {

struct StoredTensor {
  const TensorFile* file = nullptr;
  const safetensors::TensorInfo* info = nullptr;

  explicit operator bool() const { return info != nullptr; }
  /// Returns the name for messages: "<file>: tensor '<name>'".
  std::string describe() const;
  /// Reads bytes [offset, offset + out.size()) of the tensor. Thread-safe. Throws IoError.
  void read(std::int64_t offset, std::span<std::byte> out) const {
    file->read(*info, static_cast<std::uint64_t>(offset), out);
  }
};

/// The tensors of all files of a model, by name. The files must outlive the table and must not
/// move.
class TensorTable {
 public:
  TensorTable() = default;
  /// Throws FormatError if two files hold a tensor of the same name.
  explicit TensorTable(const std::vector<TensorFile>& files);

  /// Adds a tensor. Returns false if one of that name exists; the first one stays.
  bool add(const StoredTensor& tensor);
  /// Returns the tensor, or an empty one if there is none of that name.
  StoredTensor find(std::string_view name) const;
  /// Returns all tensors, file by file, in the order of their bytes.
  const std::vector<StoredTensor>& all() const { return tensors_; }

 private:
  std::vector<StoredTensor> tensors_;
  std::unordered_map<std::string_view, std::size_t> by_name_;
};

}  // namespace nvfp4::checkpoint
