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
  /// For messages: "<file>: tensor '<name>'".
  std::string describe() const;
  /// Bytes [offset, offset + out.size()) of the tensor. Thread-safe. Throws IoError.
  void read(std::int64_t offset, std::span<std::byte> out) const {
    file->read(*info, static_cast<std::uint64_t>(offset), out);
  }
};

/// The tensors of all files of a model, by name. The files must outlive it and stay where they are.
class TensorTable {
 public:
  TensorTable() = default;
  /// Throws FormatError for a name that two files hold.
  explicit TensorTable(const std::vector<TensorFile>& files);

  /// False if a tensor of that name is there already; the first one stays.
  bool add(const StoredTensor& tensor);
  /// Null if there is none.
  StoredTensor find(std::string_view name) const;
  /// File by file, in the order of their bytes.
  const std::vector<StoredTensor>& all() const { return tensors_; }

 private:
  std::vector<StoredTensor> tensors_;
  std::unordered_map<std::string_view, std::size_t> by_name_;
};

}  // namespace nvfp4::checkpoint
