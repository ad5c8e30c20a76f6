#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace nvfp4 {

/// Text of a file for a one-line message: what could break the line or the terminal (control and
/// bidirectional characters, line separators, invalid UTF-8) becomes a hexadecimal escape, and
/// text longer than `max_bytes` is cut.
std::string printable(std::string_view text, std::size_t max_bytes = 256);

}  // namespace nvfp4
