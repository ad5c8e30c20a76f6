#include <fmt/format.h>

#include <algorithm>

#include "checkpoint/base/option_values.h"
#include "commands.h"
#include "core/nearest_name.h"

namespace nvfp4::cli {
namespace {

std::string_view without_dashes(std::string_view word) {
  return word.substr(std::min(word.find_first_not_of('-'), word.size()));
}

/// Returns a text such as "; hint: did you mean 'quantize'?" with the name nearest to `word`, or ""
/// if none is near.
std::string did_you_mean(std::string_view word, const std::vector<std::string>& names) {
  std::vector<std::string> bare;
  bare.reserve(names.size());
  for (const std::string& name : names) bare.emplace_back(without_dashes(name));
  const std::size_t nearest = nearest_name(without_dashes(word), bare);
  return nearest == names.size() ? "" : fmt::format("; hint: did you mean '{}'?", names[nearest]);
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
