#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace nvfp4::checkpoint {

/// A YAML document as a tree in which nothing is expanded: an alias stays one, so that the tree is
/// no larger than its text.
struct YamlNode {
  enum class Kind { null, scalar, sequence, map, alias };
  struct Key {
    std::string text;
    int line = 0;
  };
  Kind kind = Kind::null;
  int line = 0;          ///< from 1
  bool quoted = false;   ///< a scalar in quotes, or a block of text
  bool has_tag = false;  ///< "!!str", "!own"
  bool has_anchor = false;
  std::string text;             ///< of a scalar; as it is written, without its quotes
  std::vector<YamlNode> items;  ///< of a sequence; the values of a map
  std::vector<Key> keys;        ///< of a map, each once
};

/// Deeper texts are refused: no file that is read here has more.
inline constexpr std::size_t kMaxYamlDepth = 32;

/// The one document of a text that may be hostile. `file` is named in errors. Throws FormatError
/// "file:line: what is wrong" for text that is not YAML, is larger than `max_bytes` or too deep,
/// has a key twice, a key that is no scalar or a second document. A text without a document is
/// null.
YamlNode parse_yaml(std::string_view text, const std::string& file, std::size_t max_bytes);

}  // namespace nvfp4::checkpoint
