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

struct SelftestArguments {
  std::string device, out;
  bool no_rates = false, json = false, quiet = false;
  SelftestOptions options;
};

void run(SelftestArguments& arguments) {
  std::optional<ReportFile> file;
  if (!arguments.out.empty()) file.emplace("--out", arguments.out);
  SelftestOptions& o = arguments.options;
  if (!arguments.device.empty()) o.device = device_from_name(arguments.device);
  o.rates = !arguments.no_rates;
  if (!arguments.quiet && is_terminal(stderr))
    o.progress = [](const std::string& what) { say(fmt::format("\r\033[K{}", what)); };
  const SelftestReport report = run_selftest(o);
  if (o.progress) say("\r\033[K");
  const std::string text = to_text(report), json = to_json(report);
  if (file) {
    const bool only_json = arguments.out.ends_with(".json");
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
  CommandLine line(app, "selftest");
  CommandLine::check(line.option("--device", arguments->device), device_from_name);
  line.option("--out", arguments->out);
  line.flag("--no-rates", arguments->no_rates);
  line.option("--inject-fault", arguments->options.inject_fault);
  line.flag("--json", arguments->json);
  line.threads();
  line.flag("--quiet", arguments->quiet);
  line.callback([arguments] { run(*arguments); });
}

}  // namespace nvfp4::cli
