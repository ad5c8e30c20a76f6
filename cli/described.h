#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace nvfp4::cli {

/// An option or argument as described by --help, the manual pages and the completions.
struct Described {
  std::vector<std::string> names;   ///< such as "-q", "--quiet"; an argument has one name
  std::string value;                ///< such as "FILE"; "" without value
  std::vector<std::string> values;  ///< all valid values, if there are few
  std::string text;
  bool argument = false, required = false;
};

std::vector<Described> described(const CLI::App& command);
/// Returns the subcommands in the order of --help.
std::vector<const CLI::App*> commands_of(const CLI::App& app);

}  // namespace nvfp4::cli
