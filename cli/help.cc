#include "help.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "commands/commands.h"
#include "terminal.h"

namespace nvfp4::cli {
namespace {

constexpr std::size_t kWidth = 80, kIndent = 26;

/// Returns an entry "  --name VALUE            text". Further lines of the text are below its
/// first.
std::string entry(const std::string& name, const std::string& text) {
  std::string out = "  " + name;
  bool first = true;
  for (const std::string& line : wrap_words(text, kWidth - kIndent)) {
    const bool fits = first && out.size() + 2 <= kIndent;
    if (first && !fits) out += '\n';
    out += std::string(fits ? kIndent - out.size() : kIndent, ' ') + line + '\n';
    first = false;
  }
  return out;
}

std::string paragraph(const std::string& text) {
  std::string out;
  for (const std::string& line : wrap_words(text, kWidth)) out += line + '\n';
  return out;
}

/// Returns arguments and options in the order of commands/commands.h. Those that are not in it,
/// such as --help, come first.
std::vector<const CLI::Option*> in_order_of_table(const CLI::App& app) {
  std::vector<const CLI::Option*> all = app.get_options();
  for (const Command& command : commands()) {
    if (command.name != app.get_name()) continue;
    std::ranges::stable_sort(all, {}, [&](const CLI::Option* option) {
      const CommandOption* about = command.find(option->get_single_name());
      if (about == nullptr) about = command.find("--" + option->get_single_name());
      return about == nullptr ? -1 : about - command.options.data();
    });
  }
  return all;
}

}  // namespace

std::string HelpFormatter::make_help(const CLI::App* app, std::string name,
                                     CLI::AppFormatMode /*mode*/) const {
  const Style style(stdout);
  std::string usage = name, arguments, options, commands;
  for (const CLI::Option* option : in_order_of_table(*app)) {
    if (option->get_positional()) {
      const std::string argument = option->get_name(true);
      usage += ' ' + (option->get_required() ? argument : '[' + argument + ']');
      arguments += entry(argument, option->get_description());
    } else {
      std::string left = option->get_name(false, true);
      if (const std::size_t comma = left.find(','); comma != left.npos) left.insert(comma + 1, " ");
      if (!option->get_option_text().empty()) left += ' ' + option->get_option_text();
      options += entry(left, option->get_description());
    }
  }
  for (const CLI::App* command : app->get_subcommands({}))
    commands += entry(command->get_name(), command->get_description());
  usage += commands.empty() ? " [options]" : " COMMAND [arguments]";

  std::string out = paragraph(app->get_description());
  out += fmt::format("\n{} {}\n", style.bold("Usage:"), usage);
  if (!commands.empty()) out += fmt::format("\n{}\n{}", style.bold("Commands:"), commands);
  if (!arguments.empty()) out += fmt::format("\n{}\n{}", style.bold("Arguments:"), arguments);
  if (!options.empty()) out += fmt::format("\n{}\n{}", style.bold("Options:"), options);
  return out + app->get_footer();
}

}  // namespace nvfp4::cli
