#pragma once

#include <string>
#include <string_view>

namespace nvfp4 {

/// Returns `text` as one word for a shell: bare, in quotes, or in bash's $'...' with escapes. The
/// last form is for characters that could disturb a terminal.
std::string shell_word(std::string_view text);

}  // namespace nvfp4
