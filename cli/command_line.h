#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <string>
#include <string_view>
#include <typeindex>
#include <vector>

#include "commands/arguments.h"
#include "commands/commands.h"
#include "nvfp4/error.h"

namespace nvfp4::cli {

/// A usage error with a specific code: the value of an option is at fault.
struct UsageError : CLI::ParseError {
  UsageError(const std::string& what, ErrorCode fault)
      : ParseError("UsageError", what, CLI::ExitCodes::ValidationError), code(fault) {}
  ErrorCode code;
};

/// A subcommand with the options of its table. They set the members of its arguments, which must
/// outlive the CLI::App.
class CommandLine {
 public:
  template <class Arguments>
  CommandLine(CLI::App& app, std::string_view name, Arguments& arguments)
      : CommandLine(app, nvfp4::command(name), typeid(Arguments), &arguments) {
    if constexpr (std::is_base_of_v<Printing, Arguments>) printing_ = &arguments;
  }

  /// Sets the actions of the subcommand: `check`, which throws for wrong usage, then the search for
  /// models, then `run`.
  void callback(std::function<void()> run, std::function<void()> check = {});

 private:
  CommandLine(CLI::App& app, const Command& about, std::type_index type, void* arguments);
  void add(const CommandOption& option);

  const Command& about_;
  CLI::App* command_;
  void* arguments_;
  const Printing* printing_ = nullptr;
};

/// Prints the message of a rank without a report, because other ranks are not finished.
void print_missing(const SharedWork& work, const std::vector<int>& missing, bool json);
/// Reports whether the format is one file, which is written as a whole or not at all.
bool is_one_file(std::string_view format);

}  // namespace nvfp4::cli
