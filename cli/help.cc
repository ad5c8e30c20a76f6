#include <fmt/format.h>

#include <algorithm>

#include "commands.h"
#include "terminal.h"

namespace nvfp4::cli {
namespace {

std::size_t width() { return std::min<std::size_t>(80, columns(stdout)); }

/// Returns an entry "  --name VALUE            text". Further lines of the text are below its
/// first.
std::string entry(const std::string& name, const std::string& text) {
  const std::size_t indent = width() < 60 ? 6 : 26;
  std::string out = "  " + name;
  bool first = true;
  for (const std::string& line : wrap_words(text, width() - indent)) {
    const bool fits = first && out.size() + 2 <= indent;
    if (first && !fits) out += '\n';
    out += std::string(fits ? indent - out.size() : indent, ' ') + line + '\n';
    first = false;
  }
  return out;
}

std::string paragraph(const std::string& text) {
  std::string out;
  for (const std::string& line : wrap_words(text, width())) out += line + '\n';
  return out;
}

/// Returns the text below the options, whose lines have up to 80 characters, for a narrow terminal.
/// Commands to copy, which are indented, stay on one line.
std::string notes_text(const std::string& notes) {
  if (width() >= 80) return notes;
  std::string out, gathered;
  const auto flush = [&] {
    if (!gathered.empty()) out += paragraph(gathered);
    gathered.clear();
  };
  for (std::size_t at = 0; at < notes.size();) {
    const std::size_t end = std::min(notes.find('\n', at), notes.size());
    const std::string line = notes.substr(at, end - at);
    at = end + 1;
    const std::size_t gap = line.starts_with("  ") ? line.find("  ", 2) : line.npos;
    if (!line.empty() && !line.starts_with("  ")) {
      gathered += (gathered.empty() ? "" : " ") + line;
      continue;
    }
    flush();
    out += gap == line.npos
               ? line + '\n'
               : entry(line.substr(2, gap - 2), line.substr(line.find_first_not_of(' ', gap)));
  }
  flush();
  return out;
}

}  // namespace

std::string help_text(const Command& command) {
  const Style style(stdout);
  std::string usage = command.name.empty() ? "nvfp4" : "nvfp4 " + command.name;
  std::string arguments, options, below;
  for (const CommandOption& option : command.options) {
    if (option.is_argument()) {
      usage += ' ' + option.names;
      arguments += entry(option.names, option.text);
      continue;
    }
    std::string left = option.names;
    if (const std::size_t comma = left.find(','); comma != left.npos) left.insert(comma + 1, " ");
    if (!option.value.empty()) left += ' ' + option.value;
    options += entry(left, option.text);
  }
  if (command.name.empty())
    for (const Command& each : commands()) below += entry(each.name, each.summary);
  usage += below.empty() ? " [options]" : " COMMAND [arguments]";

  std::string out = paragraph(command.summary);
  out += '\n' + paragraph(fmt::format("{} {}", style.bold("Usage:"), usage));
  if (!below.empty()) out += fmt::format("\n{}\n{}", style.bold("Commands:"), below);
  if (!arguments.empty()) out += fmt::format("\n{}\n{}", style.bold("Arguments:"), arguments);
  out += fmt::format("\n{}\n{}", style.bold("Options:"), options);
  return out + notes_text(command.notes);
}

}  // namespace nvfp4::cli
