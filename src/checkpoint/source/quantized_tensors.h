#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "checkpoint/formats/logical_tensor.h"
#include "checkpoint/gguf/view.h"
#include "nvfp4/safetensors.h"

namespace nvfp4::checkpoint {

using gguf::Naming;

/// Every tensor of a model folder, or of one .safetensors or .gguf file.
class CheckpointReader {
 public:
  /// Follows the index if there is one; else takes model.safetensors, else every .safetensors
  /// file. Throws IoError, and FormatError that names the tensor for weights whose scales are
  /// missing or ill-shaped; those of FP8 weights may be missing where tensors are as stored.
  explicit CheckpointReader(const std::filesystem::path& path, Naming naming = Naming::model);

  const std::vector<LogicalTensor>& tensors() const { return tensors_; }
  /// Null if there is none of that name.
  const LogicalTensor* find(std::string_view name) const;
  /// Weights in forms that are not read.
  const std::vector<Defect>& unread() const { return unread_; }
  /// False if an interrupted run left this folder.
  bool complete() const { return complete_; }
  /// "safetensors" or "gguf"
  std::string container() const {
    return files_.empty() ? "safetensors" : std::string(files_[0].container());
  }
  const std::string& model_type() const { return model_type_; }
  /// config.json; empty if there is none.
  const std::string& config_text() const { return config_text_; }
  const std::string& config_file() const { return config_file_; }

 private:
  void open_folder(const std::filesystem::path& folder);
  void open_file(const std::filesystem::path& path, Naming naming);
  void find_model_type();
  void require_scales(const std::filesystem::path& path, std::span<const Defect> unknown) const;
  std::vector<TensorFile> files_;
  std::vector<LogicalTensor> tensors_;
  std::vector<Defect> unread_;
  std::unordered_map<std::string_view, std::size_t> by_name_;
  bool complete_ = true;
  std::string model_type_, config_text_, config_file_;
};

}  // namespace nvfp4::checkpoint
