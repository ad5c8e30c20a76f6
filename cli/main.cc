#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <exception>
#include <memory>
#include <new>
#include <string>

#include "commands.h"
#include "help.h"
#include "interrupt.h"
#include "nvfp4/error.h"
#include "nvfp4/runtime.h"
#include "terminal.h"
#include "unknown.h"

namespace nvfp4::cli {
namespace {

constexpr int kFailed = 1, kUsage = 2;

constexpr const char* kFooter = R"(
Environment:
  NVFP4_BACKEND           backend when --backend is not given
  NVFP4_THREADS           threads when --threads is not given
  NVFP4_TUNE_CACHE        file that keeps what nvfp4 tune measured
  NO_COLOR                no colours, if set to anything

Example, with a small made-up model:
  nvfp4 sample tiny
  nvfp4 quantize tiny tiny-nvfp4
  nvfp4 compare tiny tiny-nvfp4

Exit status: 0 done, 1 an input or output failed, 2 wrong usage, 3 verify found
the checkpoint broken, repair left it so, or compare had nothing whole to
compare.
)";

int fail(std::string message, int status) {
  std::ranges::replace(message, '\n', ' ');
  say(fmt::format("{} {}\n", Style(stderr).red("nvfp4: error:"), clean(message)));
  return status;
}

void add_help(CLI::App& app) {
  auto topic = std::make_shared<std::string>();
  CLI::App* help = app.add_subcommand("help", "Show the help of a command");
  help->add_option("COMMAND", *topic, "one of the commands");
  help->callback([&app, topic] {
    if (topic->empty()) throw CLI::CallForHelp();
    const auto found =
        app.get_subcommands([&](const CLI::App* command) { return command->get_name() == *topic; });
    if (found.empty())
      throw CLI::ValidationError("help", fmt::format("no command '{}'{}", *topic,
                                                     did_you_mean(*topic, command_names(app))));
    print(found[0]->help("nvfp4"));
  });
  help->footer("\nExample:\n  nvfp4 help quantize\n");
}

/// The command whose help to point at: the one on the command line.
std::string help_of(const CLI::App& app) {
  const auto commands = app.get_subcommands();
  if (commands.empty() || commands[0]->get_name() == "help") return "nvfp4 --help";
  return fmt::format("nvfp4 {} --help", commands[0]->get_name());
}

int run(int argc, char** argv) {
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
  add_completions(app);
  add_man(app);
  add_help(app);
  try {
    app.parse(argc, argv);
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
    // A misspelt option leaves its value in the place of an argument, or an argument missing.
    std::string text = unknown_word(app);
    if (text.empty()) text = e.what();
    return fail(fmt::format("{}{} see '{}'", text, text.ends_with('?') ? "" : ";", help_of(app)),
                kUsage);
  }
}

}  // namespace
}  // namespace nvfp4::cli

int main(int argc, char** argv) {
  using namespace nvfp4::cli;
  keep_standard_streams();
  remember_command_line({argv, argv + argc});
  // A closed pipe must not kill a quantization half-way: print() sees it as EPIPE.
  std::signal(SIGPIPE, SIG_IGN);
  // A file size limit is an error like a full disk.
  std::signal(SIGXFSZ, SIG_IGN);
  try {
    return run(argc, argv);
  } catch (const nvfp4::Error& e) {
    return fail(e.what(), kFailed);
  } catch (const std::bad_alloc&) {
    return fail("out of memory", kFailed);
  } catch (const std::exception& e) {
    return fail(fmt::format("unexpected: {}", e.what()), kFailed);
  }
}
