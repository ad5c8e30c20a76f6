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

}  // namespace nvfp4
