#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace nvfp4::checkpoint {

/// A YAML document as a tree. Aliases are not expanded, so the tree is no larger than its text.
struct YamlNode {
  enum class Kind { null, scalar, sequence, map, alias };
  struct Key {
    std::string text;
    int line = 0;
  };
  Kind kind = Kind::null;
  int line = 0;          ///< line number, from 1
  bool quoted = false;   ///< true for a scalar in quotes or a block of text
  bool has_tag = false;  ///< true for a tag such as "!!str" or "!own"
  bool has_anchor = false;
  std::string text;             ///< text of a scalar, as written, without its quotes
  std::vector<YamlNode> items;  ///< items of a sequence, or values of a map
  std::vector<Key> keys;        ///< unique keys of a map
};

/// The largest depth that is accepted. No file that is read here is deeper.
inline constexpr std::size_t kMaxYamlDepth = 32;

/// Parses a text of one document, which may be hostile. `file` is named in errors. Throws
/// FormatError "file:line: reason" for text that is not YAML, is larger than `max_bytes` or too
/// deep. It also throws for a duplicate key, a key that is not a scalar, or a second document. A
/// text without a document is null.
YamlNode parse_yaml(std::string_view text, const std::string& file, std::size_t max_bytes);

}  // namespace nvfp4::checkpoint
