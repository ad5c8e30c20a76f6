#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/families/model_config.h"
#include "checkpoint/formats/declared.h"
#include "checkpoint/formats/logical_tensor.h"
#include "checkpoint/safetensors/folder_names.h"
#include "nvfp4/checkpoint/safetensors.h"
#include "nvfp4/scheme.h"

namespace nvfp4::checkpoint {

/// A model to read: a folder, or a single .safetensors or .gguf file.
struct ModelFolder {
  std::filesystem::path root;  ///< the folder of the model
  std::vector<TensorFile> files;
  std::vector<std::string> file_names;  ///< relative to `root`, sorted
  std::string index_name;               ///< file name of the index; empty if there is none
  std::vector<LogicalTensor> tensors;   ///< tensors of `files`; codes and scales are combined
  std::vector<std::size_t> file_of;     ///< index in `files` of each tensor
  Scheme scheme = Scheme::w4a4;         ///< w4a16 if no NVFP4 weight has an input scale
  std::vector<Defect> defects;          ///< defects of a folder that was opened for repair
  ModelConfig config;                   ///< config.json; its text is empty if there is none
  ModelConfig params;                   ///< params.json of Mistral's folders; only the text
  std::optional<Declared> declared;     ///< declaration of config.json, otherwise of params.json
  std::optional<Declared> hf_declared;  ///< declaration of hf_quant_config.json
  /// Files to copy, relative to `root`. Empty for a single file.
  std::vector<std::filesystem::path> others;
  std::vector<std::string> warnings;  ///< files that are not copied, with the reason
  std::vector<std::string> merged;    ///< weights and fingerprints of the merged adapters
};

/// Opens and checks every shard. The index must name exactly the tensors in the shards. Quantized
/// weights must be complete, also FP8 weights if anything declares their scales. Symbolic links are
/// followed as ModelLinks describes. With `to_repair`, the index may be wrong and weights may be
/// incomplete. Throws IoError, FormatError, UnsupportedError.
ModelFolder open_model_folder(const std::filesystem::path& input, bool to_repair = false);

}  // namespace nvfp4::checkpoint
