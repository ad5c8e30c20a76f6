#pragma once

#include <filesystem>
#include <vector>

#include "checkpoint/base/json.h"
#include "checkpoint/gguf/header.h"

namespace nvfp4::gguf {

/// Returns the keys about a model that programs show: its name and size, license, base models and
/// sampling. They come from the name of the folder or of the model on the hub, from config.json,
/// generation_config.json and the model card. `tensors`: the tensors of the file.
/// Source: github.com/ggml-org/llama.cpp, gguf-py/gguf/metadata.py and utility.py.
std::vector<NewEntry> general_entries(const std::filesystem::path& folder, const Json& config,
                                      const std::vector<TensorSpec>& tensors);

}  // namespace nvfp4::gguf
