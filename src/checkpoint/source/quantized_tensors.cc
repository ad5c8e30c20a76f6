#include "checkpoint/source/quantized_tensors.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "checkpoint/base/json_members.h"
#include "checkpoint/io/json_text.h"
#include "checkpoint/io/posix_file.h"
#include "checkpoint/io/text_file.h"
#include "checkpoint/source/model_folder.h"
#include "core/printable.h"
#include "core/require.h"

namespace nvfp4::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kIndex = "model.safetensors.index.json";

/// Returns the orientation that the down_proj of a square gate_up_proj has, otherwise null.
std::optional<bool> orientation_of_down(const LogicalTensor& stack,
                                        std::span<const LogicalTensor> tensors) {
  constexpr std::string_view kFused = "gate_up_proj";
  const std::size_t at = stack.name.rfind(kFused);
  if (at == stack.name.npos || stack.rows() != stack.cols()) return std::nullopt;
  const std::string name = std::string(stack.name).replace(at, kFused.size(), "down_proj");
  const auto down = std::ranges::find(tensors, name, &LogicalTensor::name);
  if (down == tensors.end() || down->shape.size() != 3) return std::nullopt;
  // Both sizes of gate_up_proj are the hidden size, which is the output of down_proj.
  const bool rows = down->rows() == stack.rows(), columns = down->cols() == stack.rows();
  return rows == columns ? std::nullopt : std::optional(columns);
}

}  // namespace

CheckpointReader::CheckpointReader(const fs::path& given, Naming naming) try {
  const fs::path path = model_path(given);
  require_exists(path);
  if (fs::is_directory(path))
    open_folder(path);
  else
    open_file(path, naming);
  const std::optional<Declared> declared = read_config();
  FoundTensors found = find_tensors(TensorTable(files_), declared ? &*declared : nullptr);
  if (!found.defects.empty()) throw FormatError(found.defects.front().text);
  tensors_ = std::move(found.tensors);
  unread_ = std::move(found.unknown);
  if (naming == Naming::model) require_scales(path, declared, unread_);
  for (std::size_t i = 0; i < tensors_.size(); ++i) by_name_.try_emplace(tensors_[i].name, i);
} catch (const fs::filesystem_error& e) {
  throw_io_error(e);
}

void CheckpointReader::open_folder(const fs::path& folder) {
  complete_ = !fs::exists(folder / kJournalName);
  std::vector<std::string> names;
  safetensors::Index index;
  if (complete_ && fs::exists(folder / kIndex)) {
    const fs::path path = folder / kIndex;
    index = safetensors::parse_index(read_model_text(path), path.string());
    for (const auto& [tensor, file] : index.weight_map) names.push_back(file);
  } else if (complete_ && fs::exists(folder / "model.safetensors")) {
    names.push_back("model.safetensors");
  } else {
    for (const fs::directory_entry& entry : fs::directory_iterator(folder))
      if (entry.path().extension() == ".safetensors")
        names.push_back(entry.path().filename().string());
    if (names.empty() && complete_) throw_no_weights(folder);
  }
  std::ranges::sort(names);
  names.erase(std::unique(names.begin(), names.end()), names.end());
  for (const std::string& name : names) files_.push_back(TensorFile::open(folder / name));
  for (const auto& [tensor, file] : index.weight_map) {
    const auto at = static_cast<std::size_t>(std::ranges::lower_bound(names, file) - names.begin());
    require<FormatError>(files_[at].find(tensor) != nullptr, ErrorCode::index,
                         "{}: tensor '{}' is not in {}, where the index says it is",
                         (folder / kIndex).string(), printable(tensor), file);
  }

  const fs::path config = folder / "config.json";
  if (!fs::exists(config)) return;
  config_file_ = config.string();
  config_text_ = read_model_text(config);
}

void CheckpointReader::open_file(const fs::path& path, Naming naming) {
  require_no_lfs_pointer(path);
  const bool stored = naming == Naming::stored && is_gguf_name(path);
  files_.push_back(stored ? TensorFile(gguf::open_view(path, naming)) : TensorFile::open(path));
  config_text_ = files_[0].config_text();
  config_file_ = path.string();
  model_type_ = files_[0].architecture();
}

/// Finds the model type. Returns what the configuration declares.
std::optional<Declared> CheckpointReader::read_config() try {
  if (config_text_.empty()) return {};
  const Json json = parse_config_json(config_text_, config_file_);
  if (std::string type = text_of(json, "model_type"); !type.empty()) model_type_ = std::move(type);
  return declared_in_config(json, config_file_);
} catch (const FormatError&) {  // a later reader reports the error
  return {};
}

void CheckpointReader::require_scales(const fs::path& path,
                                      const std::optional<Declared>& in_config,
                                      std::span<const Defect> unknown) const {
  std::vector<Declared> declared;
  if (in_config) declared.push_back(*in_config);
  if (const fs::path params = path / kParamsName; fs::exists(params)) {
    const std::string text = read_model_text(params);
    if (is_params_text(text))
      if (auto d = declared_in_params(text, params.string())) declared.push_back(std::move(*d));
  }
  if (const fs::path config = path / "hf_quant_config.json"; fs::exists(config)) {
    const std::string text = read_model_text(config);
    try {
      if (!text.empty()) declared.push_back(declared_in_hf_quant_config(text, config.string()));
    } catch (const FormatError&) {  // open_model_folder() also ignores the file
    }
  }
  std::vector<const Declared*> all;
  for (const Declared& d : declared) all.push_back(&d);
  require_fp8_scales(tensors_, unknown, all);
}

const LogicalTensor* CheckpointReader::find(std::string_view name) const {
  const auto it = by_name_.find(name);
  return it == by_name_.end() ? nullptr : &tensors_[it->second];
}

std::vector<WeightSlice> slices_of(const LogicalTensor& stack,
                                   std::span<const LogicalTensor> tensors,
                                   const ModelConfig& config, bool whole) {
  std::optional<bool> transposed = orientation(stack);
  if (!transposed) transposed = orientation_of_down(stack, tensors);
  return slice_experts(stack.plain_info(), config, transposed, whole);
}

}  // namespace nvfp4::checkpoint
