// Manual pages.
#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>

#include "checkpoint/base/option_values.h"
#include "commands.h"
#include "nvfp4/runtime.h"

namespace nvfp4::cli {
namespace {

/// Escapes text for roff.
std::string roff(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool starts_line = i == 0 || text[i - 1] == '\n';
    if (starts_line && (text[i] == '.' || text[i] == '\'')) out += "\\&";
    if (text[i] == '\\')
      out += "\\e";
    else if (text[i] == '-')
      out += "\\-";
    else
      out += text[i];
  }
  return out;
}

std::string upper(std::string text) {
  std::ranges::transform(text, text.begin(),
                         [](char c) { return c >= 'a' && c <= 'z' ? c - 'a' + 'A' : c; });
  return text;
}

std::string entry(const std::string& names, const std::string& value, const std::string& text) {
  std::string left;
  for (const std::string& name : options::split(names))
    left += fmt::format("{}\\fB{}\\fR", left.empty() ? "" : ", ", roff(name));
  if (!value.empty()) left += fmt::format(" \\fI{}\\fR", roff(value));
  return fmt::format(".TP\n{}\n{}\n", left, roff(text));
}

/// Returns the paragraphs of a footer. A line that ends in a colon starts a section, whose lines
/// are printed unchanged.
std::string sections(std::string_view footer) {
  std::string out, open;
  for (std::size_t at = 0; at < footer.size();) {
    const std::size_t end = std::min(footer.find('\n', at), footer.size());
    const std::string_view line = footer.substr(at, end - at);
    at = end + 1;
    const bool heading = !line.empty() && line[0] != ' ' && line.ends_with(':');
    if (line.empty() || heading) out += std::exchange(open, "");
    if (heading) {
      out +=
          fmt::format(".SH {}\n.nf\n", roff(upper(std::string(line.substr(0, line.size() - 1)))));
      open = ".fi\n";
    } else if (!line.empty()) {
      out += roff(line) + '\n';
    } else if (at < footer.size() && !out.empty()) {
      out += ".PP\n";
    }
  }
  return out + open;
}

}  // namespace

std::string man_page(const Command& command) {
  const bool whole = command.name.empty();
  const std::string name = whole ? "nvfp4" : "nvfp4-" + command.name;
  const std::string call = whole ? "nvfp4" : "nvfp4 " + command.name;
  std::string usage, arguments, options, below;
  for (const CommandOption& option : command.options) {
    if (option.is_argument()) usage += fmt::format(" \\fI{}\\fR", roff(option.names));
    (option.is_argument() ? arguments : options) += entry(option.names, option.value, option.text);
  }
  if (whole)
    for (const Command& each : commands()) below += entry(each.name, "", each.summary);
  std::string out = fmt::format(
      ".TH {} 1 \"\" \"nvfp4 {}\" \"nvfp4\"\n.SH NAME\n{} \\- {}\n.SH SYNOPSIS\n\\fB{}\\fR{}{}\n",
      roff(upper(name)), version(), roff(name), roff(command.summary), roff(call), usage,
      below.empty() ? " [options]" : " \\fICOMMAND\\fR [arguments]");
  const auto section = [&](const char* title, const std::string& text) {
    if (!text.empty()) out += fmt::format(".SH {}\n{}", title, text);
  };
  section("COMMANDS", below);
  section("ARGUMENTS", arguments);
  section("OPTIONS", options);
  // The text after the options of a command explains them.
  const std::string rest = sections(command.notes);
  if (!rest.empty() && !rest.starts_with(".SH")) out += ".SH NOTES\n";
  return out + rest;
}

}  // namespace nvfp4::cli
