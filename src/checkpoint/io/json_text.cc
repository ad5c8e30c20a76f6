#include "checkpoint/io/json_text.h"

namespace nvfp4::checkpoint {
namespace {

/// Returns the text with null for Python's NaN and Infinity outside of strings. JSON has no such
/// numbers.
std::string without_python_numbers(const std::string& text) {
  if (text.find("NaN") == text.npos && text.find("Infinity") == text.npos) return text;
  std::string out;
  std::size_t copied = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '"') {
      for (++i; i < text.size() && text[i] != '"'; ++i) i += text[i] == '\\' ? 1 : 0;
    } else if (c == '-' || c == 'I' || c == 'N') {
      for (const std::string_view word : {"-Infinity", "Infinity", "NaN"}) {
        if (!std::string_view(text).substr(i).starts_with(word)) continue;
        out.append(text, copied, i - copied).append("null");
        copied = i + word.size();
        i = copied - 1;
        break;
      }
    }
  }
  return out.append(text, copied);
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
