#pragma once

#include <CLI/CLI.hpp>
#include <string>

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

}  // namespace nvfp4::cli
