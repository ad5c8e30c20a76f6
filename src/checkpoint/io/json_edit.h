#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

/// Changes in a JSON text that leave every other byte unchanged. The text must be valid: nothing is
/// checked here.
namespace nvfp4::checkpoint {

/// A member of an object. The value is bytes [begin, end); `before` is the comma or brace before
/// the key.
struct JsonMember {
  std::string key;  ///< without escapes
  std::size_t before = 0, begin = 0, end = 0;

  bool is_object(std::string_view text) const { return text[begin] == '{'; }
};

/// Returns the members of the object whose brace is at `brace`, in their order. Keys may repeat.
std::vector<JsonMember> json_members(std::string_view text, std::size_t brace);
/// Returns a string value without escapes, or an empty text for other values.
std::string json_string(std::string_view text, const JsonMember& member);

class JsonEdits {
 public:
  explicit JsonEdits(std::string_view text) : text_(text) {}

  /// Replaces bytes [begin, end) of the text. Ranges must not overlap.
  void replace(std::size_t begin, std::size_t end, std::string with);
  /// Removes every member with this key from an object, each with a comma.
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
