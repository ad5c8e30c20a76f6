// Generates manual pages from the texts of --help.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "commands.h"
#include "described.h"
#include "nvfp4/runtime.h"
#include "terminal.h"
#include "unknown.h"

namespace nvfp4::cli {
namespace {

constexpr const char* kManFooter = R"(
Examples:
  nvfp4 man quantize | man -l -
  nvfp4 man > nvfp4.1
)";

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

std::string entry(const Described& d) {
  std::string left;
  for (const std::string& name : d.names)
    left += fmt::format("{}\\fB{}\\fR", left.empty() ? "" : ", ", roff(name));
  if (!d.value.empty()) left += fmt::format(" \\fI{}\\fR", roff(d.value));
  return fmt::format(".TP\n{}\n{}\n", left, roff(d.text));
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

std::string page(const CLI::App& app, const CLI::App& of) {
  const bool whole = &app == &of;
  const std::string name = whole ? "nvfp4" : "nvfp4-" + of.get_name();
  const std::string call = whole ? "nvfp4" : "nvfp4 " + of.get_name();
  std::string usage, arguments, options, commands;
  for (const Described& d : described(of)) {
    if (d.argument)
      usage += fmt::format(" {}\\fI{}\\fR{}", d.required ? "" : "[", roff(d.names[0]),
                           d.required ? "" : "]");
    (d.argument ? arguments : options) += entry(d);
  }
  for (const CLI::App* command : commands_of(of))
    commands += entry({{command->get_name()}, "", {}, command->get_description()});
  std::string out = fmt::format(
      ".TH {} 1 \"\" \"nvfp4 {}\" \"nvfp4\"\n.SH NAME\n{} \\- {}\n.SH SYNOPSIS\n\\fB{}\\fR{}{}\n",
      roff(upper(name)), version(), roff(name), roff(of.get_description()), roff(call), usage,
      commands.empty() ? " [options]" : " \\fICOMMAND\\fR [arguments]");
  const auto section = [&](const char* title, const std::string& text) {
    if (!text.empty()) out += fmt::format(".SH {}\n{}", title, text);
  };
  section("COMMANDS", commands);
  section("ARGUMENTS", arguments);
  section("OPTIONS", options);
  // The text after the options of a command explains them.
  const std::string rest = sections(of.get_footer());
  if (!rest.empty() && !rest.starts_with(".SH")) out += ".SH NOTES\n";
  return out + rest;
}

}  // namespace

void add_man(CLI::App& app) {
  auto topic = std::make_shared<std::string>();
  CLI::App* command = app.add_subcommand("man", "Write the manual page of a command");
  command->add_option("COMMAND", *topic, "one of the commands; nvfp4's own page if not given");
  command->footer(kManFooter);
  command->callback([&app, topic] {
    if (topic->empty()) return print(page(app, app));
    for (const CLI::App* each : commands_of(app))
      if (each->get_name() == *topic) return print(page(app, *each));
    throw CLI::ValidationError(
        "man", fmt::format("no command '{}'{}", *topic, did_you_mean(*topic, command_names(app))));
  });
}

}  // namespace nvfp4::cli
