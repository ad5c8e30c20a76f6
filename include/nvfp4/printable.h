#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace nvfp4 {

/// Text from a file, made fit for a one-line message: whatever could break the line or the terminal
/// (control and bidirectional characters, line separators, invalid UTF-8) becomes \xNN, and what is
/// longer than `max_bytes` is cut.
std::string printable(std::string_view text, std::size_t max_bytes = 256);

}  // namespace nvfp4
