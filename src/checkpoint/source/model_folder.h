#pragma once

#include <filesystem>
#include <optional>
#include <set>
#include <span>
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

/// The folder of an adapter, and the factor that its deltas are multiplied by.
struct WeightedAdapter {
  std::filesystem::path folder;
  double weight = 1;
};
/// Parses "folder" or "folder=weight". Throws ValueError.
WeightedAdapter parse_adapter(const std::string& text);

/// Adds LoRA adapters of PEFT: adapter_config.json and adapter_model.safetensors. Source:
/// github.com/huggingface/peft, src/peft/tuners/lora.
/// Adds the adapters, each "folder" or "folder=weight", to the weights of the model in their order.
/// It fills LogicalTensor::added and ModelFolder::merged. Throws IoError and FormatError. Throws
/// ValueError for an adapter of another model. Throws UnsupportedError for anything but plain LoRA
/// (such as DoRA, biases, fully trained modules, embeddings) and for weights that have four bits.
void add_adapters(ModelFolder& model, const std::vector<std::string>& adapters);

/// Returns FP8 weights without a scale, and weights of DeepSeek-V4 without MXFP4 exponents. They
/// are faults if other weights have scales, or if one of `declared` says that weights are FP8.
/// Otherwise FP8 codes are the values themselves.
std::vector<Defect> lost_fp8_scales(std::span<const LogicalTensor> tensors,
                                    std::span<const Declared* const> declared);

/// Throws FormatError for the first weight of lost_fp8_scales(). Its codes would be read as values,
/// silently wrong. Modules in `unknown` forms may have scales of their own and are skipped.
void require_fp8_scales(std::span<const LogicalTensor> tensors, std::span<const Defect> unknown,
                        std::span<const Declared* const> declared);

/// Returns scales that only quantized weights have, without codes beside them: the weight may be
/// lost. Modules in `unknown` forms may have scales of their own and are skipped.
std::vector<Defect> orphan_scales(std::span<const LogicalTensor> tensors,
                                  const std::set<std::string>& unknown);

}  // namespace nvfp4::checkpoint
