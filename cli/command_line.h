#pragma once

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <charconv>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <system_error>
#include <type_traits>
#include <vector>

#include "checkpoint/compare/shared_work.h"
#include "commands/commands.h"
#include "nvfp4/checkpoint/run_options.h"
#include "nvfp4/error.h"

namespace nvfp4::cli {

/// A transform for CLI::Option. It returns a decimal number in the form that CLI11 reads correctly:
/// CLI11 reads "010" as 8.
template <class N>
CLI::Validator number_from(N least, N most) {
  return CLI::Validator(
      [=](std::string& word) {
        N number{};
        const char* end = word.data() + word.size();
        const auto [rest, error] = std::from_chars(word.data(), end, number);
        const bool is_there = error == std::errc{} && rest == end;
        if (!is_there || !(number >= least && number <= most))
          return fmt::format("'{}', must be {} from {} to {}", word,
                             std::is_integral_v<N> ? "an integer" : "a number", least, most);
        if constexpr (std::is_integral_v<N>) word = std::to_string(number);
        return std::string();
      },
      "");
}

/// A usage error with a specific code: the value of an option is at fault.
struct UsageError : CLI::ParseError {
  UsageError(const std::string& what, ErrorCode fault)
      : ParseError("UsageError", what, CLI::ExitCodes::ValidationError), code(fault) {}
  ErrorCode code;
};

/// A subcommand with the arguments and options of commands/commands.h, in that order. Each gets the
/// variable that it sets. The variables must outlive the CLI::App.
class CommandLine {
 public:
  CommandLine(CLI::App& app, std::string_view name);

  template <class T>
  CLI::Option* option(std::string_view name, T& to) {
    static_assert(!std::is_arithmetic_v<T>, "number() says from where to where");
    if constexpr (std::is_same_v<T, std::filesystem::path>) paths_.push_back([&to] { return &to; });
    if constexpr (std::is_same_v<T, std::optional<std::filesystem::path>>)
      paths_.push_back([&to] { return to ? &*to : nullptr; });
    const CommandOption& o = take(name);
    return named_.emplace_back(dress(o, command_->add_option(o.names, to, o.text)));
  }
  /// Adds the path of a model, or its name on the Hugging Face Hub. The variable receives the
  /// folder.
  template <class T>
  CLI::Option* model(std::string_view name, T& to) {
    CLI::Option* added = option(name, to);
    models_.push_back(paths_.back());
    return added;
  }
  /// Adds a number from `least` to `most`. A word that is not a number of this type, or is NaN, is
  /// a usage error.
  template <class N, class T>
  CLI::Option* number(std::string_view name, T& to, N least, N most) {
    const CommandOption& o = take(name);
    return dress(o, command_->add_option(o.names, to, o.text))->transform(number_from(least, most));
  }
  CLI::Option* flag(std::string_view name, bool& to);
  /// Adds an option whose word is passed to `set`. A ValueError of `set` is a fault of the option.
  CLI::Option* word(std::string_view name, std::function<void(const std::string&)> set);
  /// Adds an option whose words, separated by commas, are passed to `set`.
  CLI::Option* words(std::string_view name,
                     std::function<void(const std::vector<std::string>&)> set);
  /// Rejects words for which `check` throws a ValueError.
  static void check(CLI::Option* option, std::function<void(const std::string&)> check,
                    std::string description = "");
  /// Adds --threads, for subcommands that compute.
  void threads();
  bool has(std::string_view name) const { return about_.find(name) != nullptr; }

  /// Sets the actions of the subcommand: `check`, which throws for wrong usage, then the search for
  /// models, then `run`. Every option of the table must have its variable before, otherwise it
  /// throws std::logic_error.
  void callback(std::function<void()> run, std::function<void()> check = {});

 private:
  /// A function that returns the variable of an option, or null if it has no value.
  using GivenPath = std::function<std::filesystem::path*()>;

  const CommandOption& take(std::string_view name);
  static CLI::Option* dress(const CommandOption& about, CLI::Option* option);

  const Command& about_;
  CLI::App* command_;
  std::set<const CommandOption*> taken_;
  std::vector<CLI::Option*> named_;  ///< options added by option()
  std::vector<GivenPath> paths_, models_;
};

/// The arguments for the report of a command that writes a checkpoint.
struct RunArguments {
  std::filesystem::path report;
  bool quiet = false;
};

/// Adds --allow, whose words are separated by commas.
void add_allow(CommandLine& line, Allowed& allowed);
/// Sets the variables of all other options of RunOptions that the command's table has. The device
/// is released at the end, because the process does nothing else.
void add_run_options(CommandLine& line, RunOptions& options, RunArguments& arguments);
inline constexpr int kMostRanks = 1 << 20;
/// Returns the rank of --rank and --ranks. Throws UsageError.
Rank rank_of(const std::optional<int>& rank, const std::string& ranks);
/// The arguments --rank, --ranks and --parts.
struct ShareArguments {
  std::optional<int> rank;
  std::string ranks = "1";
  std::filesystem::path parts;

  /// Returns the share of this process. Throws UsageError.
  SharedWork work() const;
};
void add_share_options(CommandLine& line, ShareArguments& arguments);
/// Prints the message of a rank without a report, because other ranks are not finished.
void print_missing(const SharedWork& work, const std::vector<int>& missing, bool json);
/// Reports whether the format is one file, which is written as a whole or not at all.
bool is_one_file(std::string_view format);

}  // namespace nvfp4::cli
