#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <memory>
#include <new>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "checkpoint/base/error_codes.h"
#include "command_line.h"
#include "commands.h"
#include "help.h"
#include "interrupt.h"
#include "nvfp4/error.h"
#include "nvfp4/runtime.h"
#include "platform/terminal.h"
#include "terminal.h"
#include "unknown.h"

namespace nvfp4::cli {
namespace {

constexpr int kFailed = 1, kUsage = 2;

constexpr const char* kFooter = R"(
Environment:
  NVFP4_BACKEND           backend if --backend is not given
  NVFP4_THREADS           threads if --threads is not given
  NVFP4_TUNE_CACHE        file with the measurements of nvfp4 tune
  NO_COLOR                no colours, if set to anything

Example, with a small synthetic model:
  nvfp4 sample tiny
  nvfp4 quantize tiny tiny-nvfp4
  nvfp4 compare tiny tiny-nvfp4

Exit status: 0 done; 1 an input or output failed; 2 wrong usage; 3 verify found
a fault, the output of repair still has one, compare had an incomplete
checkpoint or no common tensor, or selftest found a wrong result.
)";

/// True if errors are also printed to stdout as JSON.
bool g_json = false;

int fail(std::string message, int status, ErrorCode code) {
  std::ranges::replace(message, '\n', ' ');
  const Style style(stderr);
  say(fmt::format("{} {} {}\n", style.red("nvfp4: error:"), clean(message),
                  style.dim(fmt::format("[{}]", error_info(code).name()))));
  if (!g_json) return status;
  try {
    print(error_json(code, message) + '\n');
  } catch (const Error&) {  // stdout may be at fault: its reader gets the status
  }
  return status;
}

/// Returns the meaning and fix of a code such as "NV0102".
std::string code_text(const ErrorInfo& c) {
  return fmt::format("{}  {}\n\n  type  {}\n  fix   {}\n", c.name(), c.meaning, c.type, c.fix);
}

/// Returns all codes as the table of docs/errors.md.
std::string code_table() {
  std::string out =
      "# Errors\n\nEvery error has a code that stays the same when its text changes. It is at the "
      "end "
      "of the message,\nin `error.code` with `--json`, and in `error.code` in Python. `nvfp4 help "
      "NV0102` explains one;\n`nvfp4 help errors` writes this page. [verify.md](verify.md) lists "
      "the "
      "findings of `nvfp4 verify`.\n\n| code | type | meaning | fix |\n|---|---|---|---|\n";
  for (const ErrorInfo& c : error_codes())
    out += fmt::format("| {} | {} | {} | {} |\n", c.name(), c.type, c.meaning, c.fix);
  return out;
}

void add_help(CLI::App& app) {
  auto topic = std::make_shared<std::string>();
  CLI::App* help = app.add_subcommand("help", "Show the help of a command");
  help->add_option("COMMAND", *topic, "a command, an error code, or \"errors\" for all codes");
  help->callback([&app, topic] {
    if (topic->empty()) throw CLI::CallForHelp();
    if (*topic == "errors") return print(code_table());
    for (const ErrorInfo& code : error_codes())
      if (code.name() == *topic) return print(code_text(code));
    const auto found =
        app.get_subcommands([&](const CLI::App* command) { return command->get_name() == *topic; });
    if (found.empty())
      throw CLI::ValidationError("help", fmt::format("no command '{}'{}", *topic,
                                                     did_you_mean(*topic, command_names(app))));
    print(found[0]->help("nvfp4"));
  });
  help->footer("\nExamples:\n  nvfp4 help quantize\n  nvfp4 help NV0102\n");
}

/// Returns the command whose help the message names: the one on the command line.
std::string help_of(const CLI::App& app) {
  const auto commands = app.get_subcommands();
  if (commands.empty() || commands[0]->get_name() == "help") return "nvfp4 --help";
  return fmt::format("nvfp4 {} --help", commands[0]->get_name());
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
  CLI::App app(
      "Quantizes Hugging Face checkpoints to NVFP4 (4-bit floating point with block scales), on "
      "any CPU.",
      "nvfp4");
  app.formatter(std::make_shared<HelpFormatter>());
  app.set_help_flag("-h,--help", "show this help");
  add_version(app);
  app.require_subcommand(0, 1);
  app.footer(kFooter);
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
  add_completions(app);
  add_man(app);
  add_help(app);
  try {
    part_empty_values(words);
    // CLI11 takes the words in reverse order, without the program's name.
    std::ranges::reverse(words);
    words.pop_back();
    app.parse(std::move(words));
    if (app.get_subcommands().empty()) throw CLI::RequiredError("a command");
    return 0;
  } catch (const CLI::CallForHelp&) {
    const auto commands = app.get_subcommands();
    const bool whole = commands.empty() || commands[0]->get_name() == "help";
    print(whole ? app.get_formatter()->make_help(&app, "nvfp4", CLI::AppFormatMode::Normal)
                : commands[0]->help("nvfp4"));
    return 0;
  } catch (const CLI::CallForVersion& e) {
    print(fmt::format("{}\n", e.what()));
    return 0;
  } catch (const CLI::RuntimeError& e) {
    return e.get_exit_code();
  } catch (const CLI::ParseError& e) {
    // The value of a misspelled option takes the place of an argument, or an argument is missing.
    std::string text = unknown_word(app);
    const auto* of_value = text.empty() ? dynamic_cast<const UsageError*>(&e) : nullptr;
    if (text.empty()) text = e.what();
    return fail(fmt::format("{}{} see '{}'", text, text.ends_with('?') ? "" : ";", help_of(app)),
                kUsage, of_value != nullptr ? of_value->code : ErrorCode::usage);
  }
}

}  // namespace
}  // namespace nvfp4::cli

int main(int argc, char** argv) {
  using namespace nvfp4::cli;
  nvfp4::platform::prepare_streams();
  std::vector<std::string> words = nvfp4::platform::command_line(argc, argv);
  remember_command_line(words);
  g_json = std::ranges::find(words, "--json") != words.end();
  try {
    return run(std::move(words));
  } catch (const nvfp4::Error& e) {
    return fail(e.what(), kFailed, nvfp4::error_code(e));
  } catch (const std::bad_alloc& e) {
    return fail("out of memory", kFailed, nvfp4::error_code(e));
  } catch (const std::exception& e) {
    return fail(fmt::format("unexpected: {}", e.what()), kFailed, nvfp4::error_code(e));
  }
}
