#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "checkpoint/source/model_folder.h"

/// LoRA adapters of PEFT: adapter_config.json and adapter_model.safetensors.
/// Source: github.com/huggingface/peft, src/peft/tuners/lora.
namespace nvfp4::checkpoint {

/// The folder of an adapter, and the factor that its deltas are multiplied by.
struct WeightedAdapter {
  std::filesystem::path folder;
  double weight = 1;
};
/// Parses "folder" or "folder=weight". Throws ValueError.
WeightedAdapter parse_adapter(const std::string& text);

/// Adds the adapters, each "folder" or "folder=weight", to the weights of the model in their order.
/// It fills LogicalTensor::added and ModelFolder::merged. Throws IoError and FormatError. Throws
/// ValueError for an adapter of another model. Throws UnsupportedError for anything but plain LoRA
/// (such as DoRA, biases, fully trained modules, embeddings) and for weights that have four bits.
void add_adapters(ModelFolder& model, const std::vector<std::string>& adapters);

}  // namespace nvfp4::checkpoint
