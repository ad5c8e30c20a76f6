#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/base/json_members.h"
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

/// The JSON type for a vocabulary: it finds one of many keys by search.
using Tree = nlohmann::json;

/// Returns the numbers of special tokens, whether llama.cpp adds them to a text, and the chat
/// templates. `tokenizer`: tokenizer.json, `side`: tokenizer_config.json, or null. `count`: the
/// number of tokens.
/// Source: github.com/ggml-org/llama.cpp, gguf-py/gguf/vocab.py, SpecialVocab.
std::vector<NewEntry> special_tokens(const Tree& tokenizer, Tree side,
                                     const std::filesystem::path& folder, const Json& config,
                                     const Architecture& architecture, std::size_t count);

/// The kinds of tokens, with the numbers of llama.cpp and of SentencePiece.
enum TokenType : std::int64_t {
  kNormal = 1,
  kUnknown,
  kControl,
  kUserDefined,
  kUnused,
  kByte,
};

struct Piece {
  std::string text;
  float score = 0;
  std::int64_t type = kNormal;
};

/// Reads the vocabulary of a `tokenizer.model`. Returns no pieces if the bytes are no model of
/// SentencePiece that merges pairs (BPE), which is the only kind that llama.cpp has an algorithm
/// for.
/// Source: github.com/google/sentencepiece, src/sentencepiece_model.proto.
std::vector<Piece> read_sentencepiece(std::string_view bytes);

}  // namespace nvfp4::gguf
