#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

/// Changes in a JSON text that leave every other byte as it is. The text was parsed before: nothing
/// is checked here.
namespace nvfp4::checkpoint {

/// A member of an object: bytes [begin, end) of its value, and the comma or brace before the key.
struct JsonMember {
  std::string key;  ///< without escapes
  std::size_t before = 0, begin = 0, end = 0;

  bool is_object(std::string_view text) const { return text[begin] == '{'; }
};

/// Those of the object whose brace is at `brace`, in their order; keys may occur more than once.
std::vector<JsonMember> json_members(std::string_view text, std::size_t brace);
/// What a string stands for that is a value; empty for other values.
std::string json_string(std::string_view text, const JsonMember& member);

class JsonEdits {
 public:
  explicit JsonEdits(std::string_view text) : text_(text) {}

  /// Ranges that are replaced must not overlap.
  void replace(std::size_t begin, std::size_t end, std::string with);
  /// Takes every member of this key out of an object, with a comma each.
  void remove(const std::vector<JsonMember>& members, std::string_view key);
  std::string apply();

 private:
  struct Edit {
    std::size_t begin = 0, end = 0;
    std::string with;
  };
  std::string_view text_;
  std::vector<Edit> edits_;
};

}  // namespace nvfp4::checkpoint
