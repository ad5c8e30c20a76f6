#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "checkpoint/base/json.h"
#include "checkpoint/gguf/header.h"

namespace nvfp4::gguf {

struct Tokenizer {
  std::vector<NewEntry> entries;  ///< tokenizer.*
  std::string missing;            ///< why there are no entries, as a sentence
};

/// Reads tokenizer.json for llama.cpp. Only byte-level BPE with a pre-tokenizer that llama.cpp has
/// a name for is converted. A guess for others would silently give other tokens.
/// Source: github.com/ggml-org/llama.cpp, conversion/base.py, get_vocab_base();
/// src/llama-vocab.cpp.
Tokenizer read_tokenizer(const std::filesystem::path& folder, const Json& config);

}  // namespace nvfp4::gguf
