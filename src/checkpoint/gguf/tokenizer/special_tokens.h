#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "checkpoint/base/json.h"
#include "checkpoint/families/gguf_names.h"
#include "checkpoint/gguf/header.h"

namespace nvfp4::gguf {

/// The JSON type for a vocabulary: it finds one of many keys by search.
using Tree = nlohmann::json;

/// Returns a member that is a text, or the empty text.
template <class J>
std::string text_member(const J& json, const char* name) {
  if (!json.is_object()) return {};
  const auto it = json.find(name);
  return it != json.end() && it->is_string() ? it->template get<std::string>() : std::string();
}

/// Returns a member, or null.
inline const Tree& member_of(const Tree& json, const char* name) {
  static const Tree kNull;
  const auto it = json.is_object() ? json.find(name) : json.end();
  return it != json.end() ? *it : kNull;
}
/// Returns a member that is an array, or an empty one.
inline const Tree& array_of(const Tree& json, const char* name) {
  static const Tree kNone = Tree::array();
  const Tree& member = member_of(json, name);
  return member.is_array() ? member : kNone;
}

/// Returns the numbers of special tokens, whether llama.cpp adds them to a text, and the chat
/// templates. `tokenizer`: tokenizer.json, `side`: tokenizer_config.json, or null. `count`: the
/// number of tokens.
/// Source: github.com/ggml-org/llama.cpp, gguf-py/gguf/vocab.py, SpecialVocab.
std::vector<NewEntry> special_tokens(const Tree& tokenizer, Tree side,
                                     const std::filesystem::path& folder, const Json& config,
                                     const Architecture& architecture, std::size_t count);

}  // namespace nvfp4::gguf
