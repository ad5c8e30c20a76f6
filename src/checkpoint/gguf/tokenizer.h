#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "checkpoint/gguf/header.h"
#include "core/json.h"

namespace nvfp4::gguf {

struct Tokenizer {
  std::vector<NewEntry> entries;  ///< tokenizer.*
  std::string missing;            ///< if there are none: a sentence that says why
};

/// The tokenizer.json of a model as llama.cpp wants it: byte-level BPE whose pre-tokenizer is one
/// that llama.cpp has a name for. Anything else is left out, since a guess would give other tokens
/// without a word.
/// Source: github.com/ggml-org/llama.cpp, conversion/base.py, get_vocab_base();
/// src/llama-vocab.cpp.
Tokenizer read_tokenizer(const std::filesystem::path& folder, const Json& config);

}  // namespace nvfp4::gguf
