#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace nvfp4::cli {

/// What --help, the manual pages and the completions of shells say of an option or argument.
struct Described {
  std::vector<std::string> names;   ///< "-q", "--quiet"; of an argument its name alone
  std::string value;                ///< "FILE"; empty if it takes none
  std::vector<std::string> values;  ///< all that it may be, if they are few
  std::string text;
  bool argument = false, required = false;
};

std::vector<Described> described(const CLI::App& command);
/// Its commands, in the order of --help.
std::vector<const CLI::App*> commands_of(const CLI::App& app);

}  // namespace nvfp4::cli
