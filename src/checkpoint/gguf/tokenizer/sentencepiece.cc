#include <bit>
#include <optional>

#include "checkpoint/gguf/tokenizer/tokenizer.h"

namespace nvfp4::gguf {
namespace {

/// A field of a message of protocol buffers. Texts and messages have bytes, numbers a value.
struct Field {
  std::uint64_t number = 0, value = 0;
  std::string_view bytes;
};

/// Reads the fields of a message, one after the other.
class Message {
 public:
  explicit Message(std::string_view bytes) : rest_(bytes) {}

  /// Returns null at the end, or at the first byte that does not belong to a message.
  std::optional<Field> next() {
    if (rest_.empty()) return std::nullopt;
    Field field;
    const std::optional<std::uint64_t> tag = varint();
    if (!tag) return invalid();
    field.number = *tag >> 3;
    std::optional<std::uint64_t> value;
    switch (*tag & 7) {
      case 0:
        value = varint();
        break;
      case 1:
        value = fixed(8);
        break;
      case 2:
        value = varint();
        if (!value || *value > rest_.size()) return invalid();
        field.bytes = rest_.substr(0, *value);
        rest_.remove_prefix(*value);
        break;
      case 5:
        value = fixed(4);
        break;
      default:
        break;
    }
    if (!value) return invalid();
    field.value = *value;
    return field;
  }
  bool is_valid() const { return valid_; }

 private:
  std::optional<Field> invalid() {
    valid_ = false;
    return std::nullopt;
  }

  std::optional<std::uint64_t> varint() {
    std::uint64_t value = 0;
    for (std::size_t i = 0; i < rest_.size() && i < 10; ++i) {
      const auto byte = static_cast<std::uint8_t>(rest_[i]);
      value |= static_cast<std::uint64_t>(byte & 127) << (7 * i);
      if (byte < 128) {
        rest_.remove_prefix(i + 1);
        return value;
      }
    }
    return std::nullopt;
  }

  std::optional<std::uint64_t> fixed(std::size_t size) {
    if (rest_.size() < size) return std::nullopt;
    std::uint64_t value = 0;
    for (std::size_t i = 0; i < size; ++i)
      value |= static_cast<std::uint64_t>(static_cast<std::uint8_t>(rest_[i])) << (8 * i);
    rest_.remove_prefix(size);
    return value;
  }

  std::string_view rest_;
  bool valid_ = true;
};

std::optional<Piece> piece_of(std::string_view bytes) {
  Piece piece;
  Message message(bytes);
  while (const auto field = message.next()) {
    if (field->number == 1) piece.text = field->bytes;
    if (field->number == 2)
      piece.score = std::bit_cast<float>(static_cast<std::uint32_t>(field->value));
    if (field->number == 3) piece.type = static_cast<std::int64_t>(field->value);
  }
  if (!message.is_valid() || piece.type < kNormal || piece.type > kByte) return std::nullopt;
  return piece;
}

/// Reports whether the settings of the training have the model type BPE.
bool merges_pairs(std::string_view settings) {
  constexpr std::uint64_t kModelType = 3, kBpe = 2;
  Message message(settings);
  bool merges = false;
  while (const auto field = message.next())
    if (field->number == kModelType) merges = field->value == kBpe;
  return merges && message.is_valid();
}

}  // namespace

std::vector<Piece> read_sentencepiece(std::string_view bytes) {
  constexpr std::uint64_t kPieces = 1, kTraining = 2;
  std::vector<Piece> pieces;
  Message message(bytes);
  bool merges = false;
  while (const auto field = message.next()) {
    if (field->number == kTraining) merges = merges_pairs(field->bytes);
    if (field->number != kPieces) continue;
    std::optional<Piece> piece = piece_of(field->bytes);
    if (!piece) return {};
    pieces.push_back(std::move(*piece));
  }
  return merges && message.is_valid() ? pieces : std::vector<Piece>();
}

}  // namespace nvfp4::gguf
