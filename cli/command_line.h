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

#include "nvfp4/commands.h"
#include "nvfp4/error.h"
#include "nvfp4/run_options.h"
#include "nvfp4/shared_work.h"

namespace nvfp4::cli {

/// For CLI::Option::transform: leaves a decimal number as CLI11 reads it, which takes "010" for 8.
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

/// Wrong usage that has a code of its own: the value of an option is at fault.
struct UsageError : CLI::ParseError {
  UsageError(const std::string& what, ErrorCode fault)
      : ParseError("UsageError", what, CLI::ExitCodes::ValidationError), code(fault) {}
  ErrorCode code;
};

/// A subcommand: its arguments and options are those of nvfp4/commands.h, in that order; here each
/// gets the variable that it sets. The variables must live as long as the CLI::App.
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
  /// The path of a model, or its name on the Hugging Face Hub. The variable gets the folder.
  template <class T>
  CLI::Option* model(std::string_view name, T& to) {
    CLI::Option* added = option(name, to);
    models_.push_back(paths_.back());
    return added;
  }
  /// From `least` to `most`: a word that is no number of that type, NaN included, is wrong usage.
  template <class N, class T>
  CLI::Option* number(std::string_view name, T& to, N least, N most) {
    const CommandOption& o = take(name);
    return dress(o, command_->add_option(o.names, to, o.text))->transform(number_from(least, most));
  }
  CLI::Option* flag(std::string_view name, bool& to);
  /// Sets what a word stands for. A ValueError that `set` throws is a fault of the option.
  CLI::Option* word(std::string_view name, std::function<void(const std::string&)> set);
  /// Refuses words for which `check` throws a ValueError.
  static void check(CLI::Option* option, std::function<void(const std::string&)> check,
                    std::string description = "");
  /// --threads, for the subcommands that compute.
  void threads();
  bool has(std::string_view name) const { return about_.find(name) != nullptr; }

  /// Makes the subcommand call `check`, which throws for wrong usage, find the models, and call
  /// `run`. Every option of the table must have its variable by then, else std::logic_error: the
  /// table and the program disagree.
  void callback(std::function<void()> run, std::function<void()> check = {});

 private:
  /// Returns the variable of an option, or null if it has no value.
  using GivenPath = std::function<std::filesystem::path*()>;

  const CommandOption& take(std::string_view name);
  static CLI::Option* dress(const CommandOption& about, CLI::Option* option);

  const Command& about_;
  CLI::App* command_;
  std::set<const CommandOption*> taken_;
  std::vector<CLI::Option*> named_;  ///< by option()
  std::vector<GivenPath> paths_, models_;
};

/// What the program does with the report of a command that writes a checkpoint.
struct RunArguments {
  std::filesystem::path report;
  bool quiet = false;
};

/// --quantizer of a command for which it is a rule for block scales.
void add_quantizer(CommandLine& line, RunOptions& options);
/// Gives every other option of RunOptions its variable, which the command's table has. The device
/// is released at the end, as the process does nothing else.
void add_run_options(CommandLine& line, RunOptions& options, RunArguments& arguments);
inline constexpr int kMostRanks = 1 << 20;
/// What --rank and --ranks say. Throws UsageError.
Rank rank_of(const std::optional<int>& rank, const std::string& ranks);
/// --rank, --ranks and --parts.
struct ShareArguments {
  std::optional<int> rank;
  std::string ranks = "1";
  std::filesystem::path parts;

  /// Throws UsageError.
  SharedWork work() const;
};
void add_share_options(CommandLine& line, ShareArguments& arguments);
/// What a rank says that has no report, as others are still at work.
void print_missing(const SharedWork& work, const std::vector<int>& missing, bool json);
/// Whether the output in this form is one file, which is written whole or not at all.
bool is_one_file(std::string_view format);

}  // namespace nvfp4::cli
