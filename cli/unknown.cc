#include "unknown.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

namespace nvfp4::cli {
namespace {

/// Returns the number of insertions, deletions, replacements and swaps of neighbors between two
/// words.
std::size_t edits(std::string_view a, std::string_view b) {
  std::vector<std::size_t> before, last(b.size() + 1), now(b.size() + 1);
  std::iota(last.begin(), last.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    now[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      now[j] = std::min({last[j] + 1, now[j - 1] + 1, last[j - 1] + (a[i - 1] != b[j - 1])});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        now[j] = std::min(now[j], before[j - 2] + 1);
    }
    before = last;
    last = now;
  }
  return last[b.size()];
}

std::string_view without_dashes(std::string_view word) {
  return word.substr(std::min(word.find_first_not_of('-'), word.size()));
}

/// Returns the distance of a word from a name. The start of a name, of at least three letters, has
/// distance 1, however long the rest is.
std::size_t distance(std::string_view word, std::string_view name) {
  return word.size() >= 3 && name.starts_with(word) ? 1 : edits(word, name);
}

/// Returns options such as "--format". One letter is near every other, so short options are left
/// out.
std::vector<std::string> long_options(const CLI::App& command) {
  std::vector<std::string> names;
  for (const CLI::Option* option : command.get_options())
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  return names;
}

std::string unknown_option(const CLI::App& app, const CLI::App& command, std::string_view word) {
  const std::string name(word.substr(0, word.find('=')));
  std::string text = fmt::format("no option '{}'", name);
  if (&command != &app) text += " of " + command.get_name();
  for (const CLI::App* other : app.get_subcommands([](const CLI::App*) { return true; }))
    if (std::ranges::count(long_options(*other), name) != 0)
      return fmt::format("{}; {} has it", text, other->get_name());
  return text + did_you_mean(name, long_options(command));
}

std::string too_many(const CLI::App& command, const std::string& word) {
  std::string arguments;
  for (const CLI::Option* option : command.get_options())
    if (option->get_positional()) arguments += ' ' + option->get_name(true);
  return fmt::format("'{}' is one argument too many: {}{}", word, command.get_name(),
                     arguments.empty() ? " takes none" : arguments);
}

}  // namespace

std::string did_you_mean(std::string_view word, const std::vector<std::string>& names) {
  const std::string_view bare = without_dashes(word);
  const std::size_t most = std::max<std::size_t>(1, bare.size() / 3);
  if (bare.size() < 2) return {};
  std::size_t least = most + 1;
  const std::string* nearest = nullptr;
  for (const std::string& name : names)
    if (const std::size_t d = distance(bare, without_dashes(name)); d < least) {
      least = d;
      nearest = &name;
    }
  return nearest == nullptr ? "" : fmt::format("; did you mean '{}'?", *nearest);
}

std::vector<std::string> command_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; }))
    names.push_back(command->get_name());
  return names;
}

std::string unknown_word(const CLI::App& app) {
  const auto commands = app.get_subcommands();
  const CLI::App& command = commands.empty() ? app : *commands[0];
  const std::vector<std::string> words = command.remaining();
  const auto option = std::ranges::find_if(
      words, [](const std::string& word) { return word.size() > 1 && word[0] == '-'; });
  if (commands.empty() && !words.empty() && option != words.begin())
    return fmt::format("no command '{}'{}", words[0], did_you_mean(words[0], command_names(app)));
  if (option != words.end()) return unknown_option(app, command, *option);
  return words.empty() ? "" : too_many(command, words[0]);
}

}  // namespace nvfp4::cli
