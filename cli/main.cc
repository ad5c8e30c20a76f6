#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <initializer_list>
#include <memory>
#include <new>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "checkpoint/base/error_codes.h"
#include "command_line.h"
#include "commands.h"
#include "nvfp4/checkpoint/verify.h"
#include "nvfp4/error.h"
#include "nvfp4/runtime.h"
#include "platform/terminal.h"
#include "terminal.h"
#include "write_run.h"

namespace nvfp4::cli {
namespace {

constexpr int kFailed = 1, kUsage = 2;

/// True if errors are also printed to stdout as JSON.
bool g_json = false;

int fail(std::string message, int status, ErrorCode code) {
  std::ranges::replace(message, '\n', ' ');
  const Style style(stderr);
  const auto [text, hint] = error_text(code, message);
  say(wrapped(stderr, fmt::format("{} {} {}\n{} {}\n", style.red("nvfp4: error:"), clean(text),
                                  style.dim(fmt::format("[{}]", error_info(code).name())),
                                  style.bold("hint:"), clean(hint))));
  if (!g_json) return status;
  try {
    print(error_json(code, message) + '\n');
  } catch (const Error&) {  // stdout may be at fault: its reader gets the status
  }
  return status;
}

/// Returns the code, its meaning, and lines with names such as its fix.
std::string code_text(std::string_view code, std::string_view meaning,
                      std::initializer_list<std::pair<const char*, std::string_view>> lines) {
  std::string out = fmt::format("{}  {}\n\n", code, meaning);
  for (const auto& [name, text] : lines) out += fmt::format("  {:<8}{}\n", name, text);
  return wrapped(stdout, out);
}

/// Returns the help of a code of an error or a finding, or of all of them, or "".
std::string help_of_codes(std::string_view topic) {
  std::string list;
  for (const ErrorInfo& c : error_codes()) {
    if (c.name() == topic) return code_text(topic, c.meaning, {{"type", c.type}, {"fix", c.fix}});
    if (topic == "errors") list += fmt::format("{}  {}: {}\n", c.name(), c.type, c.meaning);
  }
  for (const FindingKind& k : finding_kinds()) {
    const std::string_view severity = severity_name(k.severity);
    if (k.code == topic)
      return code_text(topic, k.meaning,
                       {{"level", severity}, {"loader", k.effect}, {"fix", k.fix}});
    if (topic == "findings") list += fmt::format("{} ({}): {}\n", k.code, severity, k.meaning);
  }
  return wrapped(stdout, list);
}

/// Returns the command with this name. Throws CLI::ValidationError.
const Command& topic_command(const char* of, const std::string& topic) {
  for (const Command& command : commands())
    if (command.name == topic) return command;
  throw CLI::ValidationError(of, no_command(topic));
}

void show_help(const std::string& topic) {
  if (topic.empty()) return print(help_text(program()));
  if (const std::string text = help_of_codes(topic); !text.empty()) return print(text);
  print(help_text(topic_command("help", topic)));
}

/// Adds the commands that show texts.
void add_texts(CLI::App& app) {
  auto shell = std::make_shared<Topic>(), page = std::make_shared<Topic>(),
       topic = std::make_shared<Topic>();
  CommandLine(app, "completions", *shell).callback([shell] {
    print(completions(shell->topic, commands()));
  });
  CommandLine(app, "man", *page).callback([page] {
    print(man_page(page->topic.empty() ? program() : topic_command("man", page->topic)));
  });
  CommandLine(app, "help", *topic).callback([topic] { show_help(topic->topic); });
}

/// Adds the commands that only the Python package runs. All their words are accepted.
void add_elsewhere(CLI::App& app) {
  for (const Command& command : commands())
    if (command.arguments == typeid(ElsewhereArguments))
      app.add_subcommand(command.name, command.summary)->allow_extras()->callback([&command] {
        throw UnsupportedError(fmt::format(
            "{} needs the Python package; hint: pip install '.[transformers]' in a clone",
            command.name));
      });
}

/// Returns the table of the command on the command line.
const Command& command_of(const CLI::App& app) {
  const auto commands = app.get_subcommands();
  return commands.empty() ? program() : command(commands[0]->get_name());
}

/// Returns the words that the command, or the program, did not understand, without "--".
std::vector<std::string> remaining_of(const CLI::App& app) {
  std::vector<std::string> words = app.remaining(/*recurse=*/true);
  std::erase(words, "--");
  return words;
}

/// Returns the command whose help a message names.
std::string help_of(const Command& command) {
  if (command.name.empty() || command.name == "help") return "nvfp4 --help";
  return fmt::format("nvfp4 {} --help", command.name);
}

/// Returns the keyword at a place of a text, if it is a whole word, or "".
std::string_view keyword_at(std::string_view text, std::size_t at) {
  const auto is_of_word = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
  };
  std::size_t end = at;
  while (end < text.size() && is_of_word(text[end])) ++end;
  return text.substr(at, end - at);
}

/// Returns the option with a keyword, or null. A keyword of one letter is none: in a text it can be
/// the article "a".
const CommandOption* option_of(const Command& command, std::string_view keyword) {
  if (keyword.size() < 2) return nullptr;
  if (const CommandOption* const option = command.find_keyword(keyword)) return option;
  std::string name = fmt::format("--{}", keyword);  // an option that Python's function lacks
  std::ranges::replace(name, '_', '-');
  return command.find(name);
}

/// Returns the text of an error with the options as they are typed: "--method gptq" for "method =
/// gptq". Names of options stand at its start, and anywhere in errors that are about options alone.
std::string in_words_of(const Command& command, const Error& e) {
  const auto* of_options = dynamic_cast<const OptionsError*>(&e);
  const std::string_view text = e.what();
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    const bool after_inside = out.ends_with(" is inside ") || out.ends_with(" is ");
    const bool is_name = at == 0 || (of_options != nullptr && text[at - 1] == ' ' &&
                                     (e.code != ErrorCode::output_in_input || after_inside));
    const std::string_view keyword = is_name ? keyword_at(text, at) : "";
    const CommandOption* const option = option_of(command, keyword);
    const bool has_value = text.substr(at + keyword.size()).starts_with(" = ");
    if (option == nullptr || (of_options == nullptr && !has_value)) {
      out += text[at++];
      continue;
    }
    out += option->name();
    at += keyword.size() + (has_value ? 2 : 0);
    // Values of single options have the form of those that cannot be parsed.
    const std::size_t value = at + 1, rule = text.find(", must be ", value);
    if (out != option->name() || !has_value || rule == text.npos || text[value] == '\'') continue;
    out += fmt::format(": '{}'", text.substr(value, rule - value));
    at = rule;
  }
  const CommandOption* const at_fault =
      option_of(command, of_options == nullptr ? "" : of_options->option);
  if (at_fault == nullptr || out.find(at_fault->name()) != out.npos) return out;
  return fmt::format("{}: {}", at_fault->name(), out);
}

/// Returns an error with the hint to look into the help.
std::string with_help(const std::string& text, const Command& command) {
  const bool has_hint = text.find("; hint: ") != text.npos;
  const std::string help = help_of(command);
  return fmt::format("{}{}'{}' lists all {}", text,
                     !has_hint             ? "; hint: "
                     : text.ends_with('?') ? " "
                                           : "; ",
                     help, help == "nvfp4 --help" ? "commands" : "options");
}

/// Returns an error with the command in the hint about a value that is no choice.
std::string with_choices(std::string text, ErrorCode code, const Command& command) {
  if (code != ErrorCode::not_a_choice || text.find("; hint: ") != text.npos) return text;
  return text + fmt::format("; hint: 'nvfp4 {} --help' explains the choices", command.name);
}

/// Returns the words behind "--", which are no options.
std::vector<std::string> behind_dashes(const std::vector<std::string>& words) {
  const auto dashes = std::ranges::find(words, "--");
  return {dashes == words.end() ? dashes : dashes + 1, words.end()};
}

/// Splits "--name=" into the name and an empty word. CLI11 would take the next word as the value.
/// Scripts produce such a word from an unset variable.
void part_empty_values(std::vector<std::string>& words) {
  for (std::size_t i = 1; i < words.size() && words[i] != "--"; ++i) {
    if (words[i].size() < 4 || !words[i].starts_with("--") ||
        words[i].find('=') != words[i].size() - 1)
      continue;
    words[i].pop_back();
    words.insert(words.begin() + static_cast<std::ptrdiff_t>(++i), std::string());
  }
}

int run(std::vector<std::string> words) {
  CLI::App app(program().summary, "nvfp4");
  app.set_help_flag("-h,--help");
  ProgramFlags flags;
  for (const CommandOption& option : program().options)
    if (option.set) app.add_flag_callback(option.names, [&] { option.set(&flags, {}); });
  app.require_subcommand(0, 1);
  add_quantize(app);
  add_convert(app);
  add_inspect(app);
  add_compare(app);
  add_verify(app);
  add_repair(app);
  add_sample(app);
  add_bench(app);
  add_tune(app);
  add_selftest(app);
  add_elsewhere(app);
  add_texts(app);
  const auto fail_as = [&](const Error& e, int status) {
    const Command& command = command_of(app);
    return fail(with_choices(in_words_of(command, e), error_code(e), command), status,
                error_code(e));
  };
  const std::vector<std::string> behind = behind_dashes(words);
  try {
    part_empty_values(words);
    if (words.size() > 1 && words[1] == "--") words.erase(words.begin() + 1);
    // CLI11 takes the words in reverse order, without the program's name.
    std::ranges::reverse(words);
    words.pop_back();
    app.parse(std::move(words));
    if (flags.version)
      print(wrapped(stdout, version_text(flags.verbose) + '\n'));
    else if (app.get_subcommands().empty())
      print(help_text(program()));
    return 0;
  } catch (const CLI::CallForHelp&) {
    const Command& command = command_of(app);
    const std::vector<std::string> unknown = remaining_of(app);
    if (command.name.empty() && !unknown.empty())
      return fail(with_help(unknown_word(command, unknown, behind), command), kUsage,
                  ErrorCode::usage);
    print(help_text(command.name == "help" ? program() : command));
    return 0;
  } catch (const OptionsError& e) {
    return fail_as(e, kUsage);
  } catch (const Error& e) {
    return fail_as(e, kFailed);
  } catch (const CLI::RuntimeError& e) {
    return e.get_exit_code();
  } catch (const CLI::ParseError& e) {
    // The value of a misspelled option takes the place of an argument, or an argument is missing.
    const Command& command = command_of(app);
    std::string text = unknown_word(command, remaining_of(app), behind);
    const auto* of_value = text.empty() ? dynamic_cast<const UsageError*>(&e) : nullptr;
    if (of_value != nullptr && of_value->code != ErrorCode::usage)
      return fail(with_choices(e.what(), of_value->code, command), kUsage, of_value->code);
    return fail(with_help(text.empty() ? e.what() : text, command), kUsage, ErrorCode::usage);
  }
}

}  // namespace
}  // namespace nvfp4::cli

int main(int argc, char** argv) {
  using namespace nvfp4::cli;
  nvfp4::platform::prepare_streams();
  std::vector<std::string> words = nvfp4::platform::command_line(argc, argv);
  remember_command_line(words);
  const auto options_end = std::ranges::find(words, "--");
  g_json = std::find(words.begin(), options_end, "--json") != options_end;
  try {
    return run(std::move(words));
  } catch (const std::bad_alloc& e) {
    return fail("out of memory", kFailed, nvfp4::error_code(e));
  } catch (const std::exception& e) {
    return fail(fmt::format("unexpected: {}", e.what()), kFailed, nvfp4::error_code(e));
  }
}
