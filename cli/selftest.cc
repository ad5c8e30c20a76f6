#include "selftest/selftest.h"

#include <fmt/format.h>

#include <memory>
#include <optional>
#include <string>

#include "command_line.h"
#include "commands.h"
#include "nvfp4/error.h"
#include "report_file.h"
#include "terminal.h"

namespace nvfp4::cli {
namespace {

void run(SelftestArguments& arguments) {
  std::optional<ReportFile> file;
  if (!arguments.out.empty()) file.emplace("--out", arguments.out);
  if (!arguments.quiet && is_terminal(stderr))
    arguments.progress = [](const std::string& what) { say(fmt::format("\r\033[K{}", what)); };
  const SelftestReport report = run_selftest(arguments);
  if (arguments.progress) say("\r\033[K");
  const std::string text = to_text(report), json = to_json(report);
  if (file) {
    const bool only_json = arguments.out.string().ends_with(".json");
    file->write(only_json ? json + '\n' : fmt::format("{}\n{}\n", text, json));
  }
  if (arguments.json)
    print(json + '\n');
  else
    print(text);
  if (!report.passed()) throw CLI::RuntimeError(kBroken);
}

}  // namespace

void add_selftest(CLI::App& app) {
  auto arguments = std::make_shared<SelftestArguments>();
  CommandLine line(app, "selftest", *arguments);
  line.callback([arguments] { run(*arguments); });
}

}  // namespace nvfp4::cli
