#pragma once

#include <CLI/CLI.hpp>

/// One function for each subcommand: declares its arguments; its callback calls one library
/// function and prints the result. main() turns exceptions into exit codes.
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

/// Exit status of `verify` for a broken checkpoint and of `compare` for an incomplete one, thrown
/// as CLI::RuntimeError.
inline constexpr int kBroken = 3;

/// --threads, for the subcommands that compute.
void add_threads(CLI::App& command);

/// --resume, --overwrite, --dry-run and --quiet, for the subcommands that write a checkpoint. What
/// they are kept in must live as long as `command`.
void add_run_flags(CLI::App& command, bool& resume, bool& overwrite, bool& dry_run, bool& quiet);
/// --drop, for those that may write a form with less in it.
void add_drop(CLI::App& command, bool& drop);
/// --force, for those that read a checkpoint to write another.
void add_force(CLI::App& command, bool& force);
/// --report, for those whose report is about tensors.
void add_report(CLI::App& command, std::string& file);

}  // namespace nvfp4::cli
