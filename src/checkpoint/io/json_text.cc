#include "checkpoint/io/json_text.h"

namespace nvfp4::checkpoint {
namespace {

/// Returns the text with null for Python's NaN and Infinity outside of strings. JSON has no such
/// numbers.
std::string without_python_numbers(const std::string& text) {
  std::string out;
  out.reserve(text.size());
  bool in_string = false;
  for (std::size_t i = 0; i < text.size();) {
    const std::string_view rest = std::string_view(text).substr(i);
    if (!in_string) {
      std::size_t skip = 0;
      for (const std::string_view word : {"-Infinity", "Infinity", "NaN"})
        if (skip == 0 && rest.starts_with(word)) skip = word.size();
      if (skip > 0) {
        out += "null";
        i += skip;
        continue;
      }
    }
    if (in_string && text[i] == '\\' && i + 1 < text.size())
      out += text[i++];
    else if (text[i] == '"')
      in_string = !in_string;
    out += text[i++];
  }
  return out;
}

}  // namespace

bool is_shallow_json(std::string_view text) {
  int depth = 0;
  bool in_string = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '"')
      in_string = !in_string;
    else if (in_string)
      i += c == '\\' ? 1 : 0;
    else if ((c == '{' || c == '[') && ++depth > kMaxJsonDepth)
      return false;
    else if (c == '}' || c == ']')
      --depth;
  }
  return true;
}

Json parse_config_json(const std::string& text, const std::string& file) {
  Json json = parse_json(without_python_numbers(text), file);
  require<FormatError>(json.is_object(), "{}: must be a JSON object", file);
  return json;
}

}  // namespace nvfp4::checkpoint
