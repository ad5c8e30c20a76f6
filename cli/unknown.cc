#include "unknown.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "checkpoint/base/option_values.h"

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

/// Returns a text such as "; hint: did you mean 'quantize'?" with the name nearest to `word`, or ""
/// if none is near.
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
  return nearest == nullptr ? "" : fmt::format("; hint: did you mean '{}'?", *nearest);
}

/// Returns options such as "--format". One letter is near every other, so short options are left
/// out.
std::vector<std::string> long_options(const Command& command) {
  std::vector<std::string> names;
  for (const CommandOption& option : command.options)
    for (const std::string& name : options::split(option.names))
      if (name.starts_with("--")) names.push_back(name);
  return names;
}

std::string unknown_option(const Command& command, std::string_view word) {
  const std::string name(word.substr(0, word.find('=')));
  std::string text = fmt::format("no option '{}'", name);
  if (!command.name.empty()) text += " of " + command.name;
  if (const std::string now = command.place_of_former(name); !now.empty())
    return fmt::format("{}; hint: did you mean '{}'?", text, now);
  for (const Command& other : commands())
    if (other.find(name) != nullptr) return fmt::format("{}; hint: {} has it", text, other.name);
  return text + did_you_mean(name, long_options(command));
}

std::string too_many(const Command& command, const std::string& word) {
  std::string arguments;
  for (const CommandOption& option : command.options)
    if (option.is_argument()) arguments += ' ' + option.names;
  return fmt::format("'{}' is one argument too many: {}{}", word, command.name,
                     arguments.empty() ? " takes none" : arguments);
}

}  // namespace

std::string no_command(std::string_view word) {
  std::vector<std::string> names;
  for (const Command& command : commands()) names.push_back(command.name);
  return fmt::format("no command '{}'{}", word, did_you_mean(word, names));
}

std::string unknown_word(const Command& command, const std::vector<std::string>& words,
                         const std::vector<std::string>& behind) {
  const auto option = std::ranges::find_if(words, [&](const std::string& word) {
    return word.size() > 1 && word[0] == '-' && std::ranges::count(behind, word) == 0;
  });
  if (command.name.empty() && !words.empty() && option != words.begin())
    return no_command(words[0]);
  if (option != words.end()) return unknown_option(command, *option);
  return words.empty() ? "" : too_many(command, words[0]);
}

}  // namespace nvfp4::cli
