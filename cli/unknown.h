#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "commands/commands.h"

namespace nvfp4::cli {

/// Returns the error for a word that is no command, with the nearest name.
std::string no_command(std::string_view word);

/// Returns the error for the first unexpected word of a command line, or "". `words` are those that
/// were not understood; those behind "--" are no options.
std::string unknown_word(const Command& command, const std::vector<std::string>& words,
                         const std::vector<std::string>& behind);

}  // namespace nvfp4::cli
