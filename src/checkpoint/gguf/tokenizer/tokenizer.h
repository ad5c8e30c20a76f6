#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "checkpoint/base/json.h"
#include "checkpoint/families/gguf_names.h"
#include "checkpoint/gguf/header.h"

namespace nvfp4::gguf {

struct Tokenizer {
  std::vector<NewEntry> entries;  ///< tokenizer.*
  std::string missing;            ///< why there are no entries, as a sentence
};

/// Reads tokenizer.json or tokenizer.model for llama.cpp. A tokenizer is converted if llama.cpp has
/// a name for it. A guess for others would silently give other tokens.
/// Source: github.com/ggml-org/llama.cpp, conversion/, set_vocab() of each model;
/// src/llama-vocab.cpp.
Tokenizer read_tokenizer(const std::filesystem::path& folder, const Json& config,
                         const Architecture& architecture);

}  // namespace nvfp4::gguf
