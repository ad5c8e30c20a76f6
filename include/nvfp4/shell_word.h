#pragma once

#include <string>
#include <string_view>

namespace nvfp4 {

/// The word of a command line that a shell reads as `text`: bare, in quotes, or, if it has what
/// could disturb a terminal, in bash's $'...' with escapes.
std::string shell_word(std::string_view text);

}  // namespace nvfp4
