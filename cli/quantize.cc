#include <fmt/format.h>

#include <memory>
#include <string>

#include "checkpoint/run/start.h"
#include "command_line.h"
#include "commands.h"
#include "nvfp4/checkpoint/checkpoint.h"
#include "nvfp4/checkpoint/convert.h"
#include "terminal.h"
#include "write_run.h"

namespace nvfp4::cli {
namespace {

void check(QuantizeArguments& arguments) {
  checkpoint::check_given(arguments);
  const Rank rank = rank_of(arguments);
  arguments.rank = rank.rank;
  arguments.ranks = rank.ranks;
}

void run(QuantizeArguments& options) {
  if (options.format.empty()) options.format = default_format(options.output);
  const QuantizeReport report = run_reported<QuantizeCheckpointOptions>(
      "quantize", is_one_file(options.format), options, options.quiet, quantize_checkpoint);
  if (options.json) return print(to_json(report) + "\n");
  if (options.quiet) return;
  print_summary(report, {options.input, options.output,
                         fmt::format("{}, scheme {}", report.method, scheme_name(report.scheme)),
                         options.format});
}

void check(ConvertOptions& options) {
  checkpoint::check_given(options);
  const std::string of_name = default_format(options.output);
  if (options.to.empty() && is_one_file(of_name)) options.to = of_name;
  if (options.to.empty()) throw CLI::RequiredError("--to");
}

void run(ConvertArguments& options) {
  const QuantizeReport report = run_reported<ConvertOptions>(
      "convert", is_one_file(options.to), options, options.quiet, convert_checkpoint);
  if (options.json) return print(to_json(report) + "\n");
  if (!options.quiet) print_summary(report, {options.input, options.output, "", options.to});
}

}  // namespace

void add_quantize(CLI::App& app) {
  auto arguments = std::make_shared<QuantizeArguments>();
  CommandLine line(app, "quantize", *arguments);
  line.callback([arguments] { run(*arguments); }, [arguments] { check(*arguments); });
}

void add_convert(CLI::App& app) {
  auto arguments = std::make_shared<ConvertArguments>();
  CommandLine line(app, "convert", *arguments);
  line.callback([arguments] { run(*arguments); }, [arguments] { check(*arguments); });
}

}  // namespace nvfp4::cli
