#pragma once

#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "checkpoint/families/experts.h"
#include "checkpoint/formats/declared.h"
#include "checkpoint/formats/logical_tensor.h"
#include "checkpoint/gguf/view.h"
#include "nvfp4/checkpoint/safetensors.h"

namespace nvfp4::checkpoint {

using gguf::Naming;

/// A reader of every tensor of a model folder, or of one .safetensors or .gguf file.
class CheckpointReader {
 public:
  /// Opens the files of the index, otherwise model.safetensors, otherwise every .safetensors file.
  /// Throws IoError. Throws FormatError with the tensor's name for a weight whose scales are
  /// missing or have the wrong shape. With Naming::stored, FP8 scales may be missing.
  explicit CheckpointReader(const std::filesystem::path& path, Naming naming = Naming::model);

  const std::vector<LogicalTensor>& tensors() const { return tensors_; }
  /// Returns the tensor, or null if there is none of that name.
  const LogicalTensor* find(std::string_view name) const;
  /// Returns the weights in unsupported forms.
  const std::vector<Defect>& unread() const { return unread_; }
  /// Returns false if an interrupted run left this folder.
  bool complete() const { return complete_; }
  /// Returns "safetensors" or "gguf".
  std::string container() const {
    return files_.empty() ? "safetensors" : std::string(files_[0].container());
  }
  const std::string& model_type() const { return model_type_; }
  /// Returns the text of config.json, or an empty text if there is none.
  const std::string& config_text() const { return config_text_; }
  const std::string& config_file() const { return config_file_; }

 private:
  void open_folder(const std::filesystem::path& folder);
  void open_file(const std::filesystem::path& path, Naming naming);
  std::optional<Declared> read_config();
  void require_scales(const std::filesystem::path& path, const std::optional<Declared>& in_config,
                      std::span<const Defect> unknown) const;
  std::vector<TensorFile> files_;
  std::vector<LogicalTensor> tensors_;
  std::vector<Defect> unread_;
  std::unordered_map<std::string_view, std::size_t> by_name_;
  bool complete_ = true;
  std::string model_type_, config_text_, config_file_;
};

/// Returns slice_experts() of a stack among the `tensors` of its model. Of a square gate_up_proj,
/// down_proj tells rows from columns.
std::vector<WeightSlice> slices_of(const LogicalTensor& stack,
                                   std::span<const LogicalTensor> tensors,
                                   const ModelConfig& config, bool whole = false);

}  // namespace nvfp4::checkpoint
