#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "nvfp4/checkpoint/safetensors.h"

namespace nvfp4::checkpoint {

struct StoredForm {
  std::string type;  ///< such as "BF16" or "Q4_K"
  std::vector<std::int64_t> shape;
};

/// A reader of a container. It presents tensors with the names and forms of a Hugging Face model,
/// whatever the file stores. A quantized weight has codes and scales with the names of a scheme.
class TensorSource {
 public:
  virtual ~TensorSource() = default;
  virtual const std::filesystem::path& path() const = 0;
  virtual const safetensors::Metadata& metadata() const = 0;
  virtual const std::vector<safetensors::TensorInfo>& tensors() const = 0;
  /// Returns the tensor, or null if there is none of that name.
  virtual const safetensors::TensorInfo* find(std::string_view name) const = 0;
  virtual void read(const safetensors::TensorInfo& tensor, std::uint64_t offset,
                    std::span<std::byte> out) const = 0;
  /// Announces that these bytes, which are inside the tensor, are read soon. It is only a hint.
  /// Thread-safe.
  virtual void will_read(const safetensors::TensorInfo& tensor, std::uint64_t offset,
                         std::uint64_t bytes) const = 0;
  /// Returns the tensor's bytes in a memory map, or nothing if the file does not store them that
  /// way.
  virtual std::span<const std::byte> data(const safetensors::TensorInfo& tensor) const = 0;
  virtual void check_unchanged() const = 0;
  virtual std::uint64_t file_bytes() const = 0;
  virtual std::int64_t modified_ns() const = 0;
  /// Returns "safetensors" or "gguf".
  virtual std::string_view container() const = 0;
  /// Returns the dtype and shape as the file itself describes them.
  virtual StoredForm stored_form(const safetensors::TensorInfo& tensor) const {
    return {std::string(safetensors::dtype_name(tensor.dtype)), tensor.shape};
  }
  /// Returns the architecture if the container names it, otherwise an empty text.
  virtual std::string architecture() const { return {}; }
  /// Returns config.json if the container holds it, otherwise an empty text.
  virtual std::string config_text() const { return {}; }
  /// Throws UnsupportedError if config_text() omits a setting that the model computes with.
  virtual void require_config() const {}
  /// Returns a line for each thing that this reader leaves out.
  virtual std::vector<std::string> warnings() const { return {}; }
};

/// An open file of tensors, in any container. It is move-only.
class TensorFile {
 public:
  /// Opens a file by its extension: ".gguf", otherwise safetensors. Throws IoError, FormatError,
  /// UnsupportedError.
  static TensorFile open(const std::filesystem::path& path);
  explicit TensorFile(std::unique_ptr<const TensorSource> source) : source_(std::move(source)) {}

  const std::filesystem::path& path() const { return source_->path(); }
  const safetensors::Metadata& metadata() const { return source_->metadata(); }
  const std::vector<safetensors::TensorInfo>& tensors() const { return source_->tensors(); }
  /// Returns the tensor, or null if there is none of that name.
  const safetensors::TensorInfo* find(std::string_view name) const { return source_->find(name); }
  /// Reads bytes [offset, offset + out.size()) of a tensor. Thread-safe. Throws IoError. Throws
  /// FormatError for values that the tensor's dtype cannot hold.
  void read(const safetensors::TensorInfo& tensor, std::uint64_t offset,
            std::span<std::byte> out) const {
    source_->read(tensor, offset, out);
  }
  void will_read(const safetensors::TensorInfo& tensor, std::uint64_t offset,
                 std::uint64_t bytes) const {
    source_->will_read(tensor, offset, bytes);
  }
  std::span<const std::byte> data(const safetensors::TensorInfo& tensor) const {
    return source_->data(tensor);
  }
  void check_unchanged() const { source_->check_unchanged(); }
  std::uint64_t file_bytes() const { return source_->file_bytes(); }
  std::int64_t modified_ns() const { return source_->modified_ns(); }
  std::string_view container() const { return source_->container(); }
  StoredForm stored_form(const safetensors::TensorInfo& tensor) const {
    return source_->stored_form(tensor);
  }
  std::string architecture() const { return source_->architecture(); }
  std::string config_text() const { return source_->config_text(); }
  void require_config() const { source_->require_config(); }
  std::vector<std::string> warnings() const { return source_->warnings(); }

 private:
  std::unique_ptr<const TensorSource> source_;
};

/// Reports whether the path names a GGUF file, which holds a whole model with its configuration.
bool is_gguf_name(const std::filesystem::path& path);

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
