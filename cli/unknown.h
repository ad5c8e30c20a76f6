#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace nvfp4::cli {

/// Returns a text such as "; did you mean 'quantize'?" with the name nearest to `word`, or "" if
/// none is near.
std::string did_you_mean(std::string_view word, const std::vector<std::string>& names);

/// Returns the names of all commands.
std::vector<std::string> command_names(const CLI::App& app);

/// Returns the error for the first unexpected word of the command line, after it was parsed, or "".
std::string unknown_word(const CLI::App& app);

}  // namespace nvfp4::cli
