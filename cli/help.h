#pragma once

#include <span>
#include <string>

#include "commands/commands.h"

/// Texts made from the tables of options.
namespace nvfp4::cli {

/// Returns the help of a command in 80 columns: summary, usage, arguments, options, an example.
std::string help_text(const Command& command);
/// Returns the manual page of a command.
std::string man_page(const Command& command);
/// Returns the completions of bash, zsh or fish.
std::string completions(const std::string& shell, std::span<const Command> commands);

}  // namespace nvfp4::cli
