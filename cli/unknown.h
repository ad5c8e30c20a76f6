#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace nvfp4::cli {

/// "; did you mean 'quantize'?" for the one of `names` that is nearest to `word`; "" if none is
/// near.
std::string did_you_mean(std::string_view word, const std::vector<std::string>& names);

/// The names of all commands.
std::vector<std::string> command_names(const CLI::App& app);

/// What is wrong with the first word of the command line that nothing expects, after it was parsed;
/// "" if all of them have a place.
std::string unknown_word(const CLI::App& app);

}  // namespace nvfp4::cli
