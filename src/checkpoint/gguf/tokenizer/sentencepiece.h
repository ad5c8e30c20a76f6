#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace nvfp4::gguf {

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
