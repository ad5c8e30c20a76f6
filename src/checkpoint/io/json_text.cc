#include "checkpoint/io/json_text.h"

namespace nvfp4::checkpoint {

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

}  // namespace nvfp4::checkpoint
