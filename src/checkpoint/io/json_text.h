#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/base/json.h"
#include "core/printable.h"
#include "core/require.h"

namespace nvfp4::checkpoint {

/// The largest depth of nested containers in a JSON text of a checkpoint. Copies, comparisons and
/// output of a value recurse; a deeper value would overflow the stack.
inline constexpr int kMaxJsonDepth = 128;

/// Reports whether no value of the text is nested in more than kMaxJsonDepth containers.
bool is_shallow_json(std::string_view text);

/// Returns JSON in one line. Invalid UTF-8, possible in names of a file, is replaced.
inline std::string dump_line(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}
inline std::string dump_pretty(const Json& json, int indent = 2) {
  return json.dump(indent, ' ', false, Json::error_handler_t::replace);
}

/// Returns the reason why a text is not JSON, in one bounded line. The exception repeats the whole
/// last token, which may be most of the file.
inline std::string parse_failure(const Json::exception& error) {
  std::string_view reason = error.what();
  reason = reason.substr(0, reason.find("; last read"));
  if (const auto end = reason.find("] "); reason.starts_with("[json.") && end != reason.npos)
    reason.remove_prefix(end + 2);
  return printable(reason);
}

/// Parses JSON. Every JSON text of a checkpoint goes through this or parse_json_or_null(). Throws
/// FormatError that starts with `where`.
template <class T = Json>
T parse_json(std::string_view text, const std::string& where) try {
  require<FormatError>(is_shallow_json(text), ErrorCode::deep_json,
                       "{}: JSON is nested deeper than {} levels", where, kMaxJsonDepth);
  // nlohmann takes a NUL for the end of the text and ignores the rest.
  require<FormatError>(text.find('\0') == text.npos, "{}: a NUL byte in JSON", where);
  return T::parse(text);
} catch (const Json::exception& e) {
  throw FormatError(fmt::format("{}: {}", where, parse_failure(e)), ErrorCode::invalid_json);
}

/// Parses JSON. Returns null if the text is not JSON or is nested too deep.
template <class T = Json>
T parse_json_or_null(std::string_view text) {
  if (!is_shallow_json(text) || text.find('\0') != text.npos) return nullptr;
  T json = T::parse(text, nullptr, /*allow_exceptions=*/false);
  return json.is_discarded() ? T() : json;
}

/// Parses a JSON object as Python writes it: NaN and Infinity become null. Throws FormatError.
Json parse_config_json(const std::string& text, const std::string& file);

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

/// Changes in a JSON text that leave every other byte unchanged. The text must be valid: nothing is
/// checked here.
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
