#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "checkpoint/source/model_folder.h"

/// LoRA adapters as PEFT stores them: adapter_config.json, adapter_model.safetensors.
/// Source: github.com/huggingface/peft, src/peft/tuners/lora.
namespace nvfp4::checkpoint {

/// Adds the adapters, each "folder" or "folder=weight", to the weights of the model in their order:
/// LogicalTensor::added, ModelFolder::merged. Throws IoError, FormatError, ValueError for an
/// adapter of another model and UnsupportedError for what is no plain LoRA: DoRA, biases, modules
/// that were trained whole, embeddings, and for weights that have four bits.
void add_adapters(ModelFolder& model, const std::vector<std::string>& adapters);

}  // namespace nvfp4::checkpoint
