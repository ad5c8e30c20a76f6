#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/families/model_config.h"
#include "checkpoint/formats/declared.h"
#include "checkpoint/formats/logical_tensor.h"
#include "checkpoint/safetensors/folder_names.h"
#include "nvfp4/safetensors.h"
#include "nvfp4/scheme.h"

namespace nvfp4::checkpoint {

/// A model to read: a folder, or one .safetensors or .gguf file by itself.
struct ModelFolder {
  std::filesystem::path root;  ///< the folder
  std::vector<TensorFile> files;
  std::vector<std::string> file_names;  ///< in `root`, sorted
  std::string index_name;               ///< "" if the model has none
  std::vector<LogicalTensor> tensors;   ///< of `files`, codes and scales put together
  std::vector<std::size_t> file_of;     ///< in `files`, of each of `tensors`
  Scheme scheme = Scheme::nvfp4;        ///< nvfp4a16 if its NVFP4 weights have no input scales
  std::vector<Defect> defects;          ///< of a folder that was opened to be repaired
  ModelConfig config;                   ///< config.json; its text is "" if there is none
  ModelConfig params;                   ///< params.json of Mistral's folders, its text alone
  std::optional<Declared> declared;     ///< by config.json, else by params.json
  std::optional<Declared> hf_declared;  ///< by hf_quant_config.json
  /// Files to carry over, relative to `root`; empty for a single file.
  std::vector<std::filesystem::path> others;
  std::vector<std::string> warnings;  ///< what is not carried over, and why
  std::vector<std::string> merged;    ///< weights and contents of the adapters that were added
};

/// Opens and checks every shard. The index must name exactly the tensors that the shards hold, and
/// quantized weights must be whole: FP8 ones too, where anything says that they have scales.
/// Symbolic links are followed as ModelLinks says. Throws IoError, FormatError, UnsupportedError.
/// To repair it, the index need not be right nor weights be whole.
ModelFolder open_model_folder(const std::filesystem::path& input, bool to_repair = false);

}  // namespace nvfp4::checkpoint
