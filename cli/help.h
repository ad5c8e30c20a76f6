#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "commands/commands.h"

/// Texts made from the tables of options.
namespace nvfp4::cli {

/// Returns the help of a command in 80 columns: summary, usage, arguments, options, an example.
std::string help_text(const Command& command);
/// Returns the manual page of a command.
std::string man_page(const Command& command);
/// Returns the completions of bash, zsh or fish.
std::string completions(const std::string& shell, std::span<const Command> commands);

/// Returns the error for a word that is no command, with the nearest name.
std::string no_command(std::string_view word);

/// Returns the error for the first unexpected word of a command line, or "". `words` are those that
/// were not understood; those behind "--" are no options.
std::string unknown_word(const Command& command, const std::vector<std::string>& words,
                         const std::vector<std::string>& behind);

}  // namespace nvfp4::cli
