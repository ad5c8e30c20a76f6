#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace nvfp4 {

/// Returns text of a file for a one-line message. Characters that could break the line or the
/// terminal become hexadecimal escapes: control and bidirectional characters, line separators,
/// invalid UTF-8. Text longer than `max_bytes` is cut.
std::string printable(std::string_view text, std::size_t max_bytes = 256);

bool is_utf8(std::string_view text);

/// The first character of a text.
struct Character {
  char32_t code = 0;
  std::size_t bytes = 0;  ///< 0 if the bytes are not UTF-8
};
/// Returns the first character of `text`, which must not be empty.
Character first_character(std::string_view text);

}  // namespace nvfp4
