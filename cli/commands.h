#pragma once

#include <CLI/CLI.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "commands/commands.h"

/// One function for each subcommand. It declares the arguments; its callback calls one library
/// function and prints the result. main() converts exceptions to exit codes.
namespace nvfp4::cli {

void add_quantize(CLI::App& app);
void add_convert(CLI::App& app);
void add_inspect(CLI::App& app);
void add_compare(CLI::App& app);
void add_verify(CLI::App& app);
void add_repair(CLI::App& app);
void add_sample(CLI::App& app);
void add_bench(CLI::App& app);
void add_tune(CLI::App& app);
void add_selftest(CLI::App& app);
/// Returns the text of --version.
std::string version_text(bool verbose);

/// The exit status of `verify` for a broken checkpoint, of `compare` for an incomplete one and of
/// `selftest` for a wrong result. It is thrown as CLI::RuntimeError.
inline constexpr int kBroken = 3;
/// Exit status of `verify --for` if nobody knows whether the loader reads the checkpoint.
inline constexpr int kUnknown = 4;

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
