#include <fmt/format.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "command_line.h"
#include "commands.h"
#include "interrupt.h"
#include "nvfp4/checkpoint.h"
#include "nvfp4/error.h"
#include "nvfp4/hub.h"
#include "report_file.h"
#include "summary.h"
#include "terminal.h"

namespace nvfp4::cli {
namespace {

struct QuantizeArguments {
  QuantizeCheckpointOptions options;
  RunArguments run;
  bool json = false;
  std::string scheme = "nvfp4", ranks = "1", push;
  std::optional<int> rank;
  std::optional<std::string> size;
  QuantizeArguments() { run.quantizer.clear(); }
};

std::string pattern_fault(const std::string& pattern) try {
  check_pattern(pattern);
  return {};
} catch (const ValueError& e) {
  return e.what();
}

std::string check_fuse(const std::string& names) {
  int count = 0;
  for (std::size_t begin = 0; begin <= names.size(); ++count) {
    const std::size_t end = std::min(names.find(',', begin), names.size());
    if (end == begin || names.substr(begin, end - begin).find('.') != std::string::npos)
      return fmt::format("'{}' must be last name components separated by commas", names);
    begin = end + 1;
  }
  return count >= 2 ? "" : fmt::format("'{}' is one component, needs two or more", names);
}

/// Better refused now than after the run.
void check_push(const QuantizeArguments& arguments) {
  if (!is_hub_name(arguments.push))
    throw CLI::ValidationError(
        "--push", fmt::format("'{}' must be a name as the hub has them, org/name", arguments.push));
  if (is_one_file(arguments.options.format))
    throw CLI::ValidationError(
        "--push", fmt::format("uploads a folder, {} is one file", arguments.options.format));
  if (!arguments.options.dry_run) push_account();
}

void run(QuantizeArguments& arguments) {
  QuantizeCheckpointOptions& options = arguments.options;
  options.scheme = scheme_from_name(arguments.scheme);
  if (options.format.empty()) options.format = default_format(options.output);
  options.method = std::exchange(arguments.run.quantizer, "mse");  // which counts without it
  const Rank rank = rank_of(arguments.rank, arguments.ranks);
  options.rank = rank.rank;
  options.ranks = rank.ranks;
  if (!arguments.push.empty()) check_push(arguments);
  try {
    if (arguments.size) options.size = size_from_text(*arguments.size);
  } catch (const ValueError& e) {
    throw CLI::ValidationError("--size", e.what());
  }
  const std::filesystem::path given = options.input;
  // --bits and --size read the model twice.
  const HubInput input(options, options.ranks == 1 && !options.bits && !options.size);
  finish_run_options(options, arguments.run);
  std::optional<ReportFile> report_file;
  if (!arguments.run.report.empty())
    report_file.emplace("--report", arguments.run.report, std::vector{options.input},
                        options.input_amax);
  if (!options.dry_run) on_interrupt(/*resumes=*/!is_one_file(options.format));
  const QuantizeReport report = [&] {
    ProgressBar progress("quantize", arguments.run.quiet);
    options.progress = progress.callback();
    return quantize_checkpoint(options);
  }();
  if (report_file) report_file->write(to_json(report) + "\n");
  print_warnings(report);
  std::string pushed;
  if (!arguments.push.empty() && report.complete && !report.dry_run)
    pushed = push_model(options.output, arguments.push);
  if (arguments.json) return print(to_json(report) + "\n");
  if (arguments.run.quiet) return;
  print_summary(report, {options.supply ? given : options.input, options.output,
                         fmt::format("{}, scheme {}, format {}", report.method,
                                     scheme_name(report.scheme), options.format)});
  if (!pushed.empty()) print(fmt::format("uploaded: {}\n", clean(pushed)));
}

}  // namespace

void add_quantize(CLI::App& app) {
  auto arguments = std::make_shared<QuantizeArguments>();
  QuantizeCheckpointOptions& o = arguments->options;
  CommandLine line(app, "quantize");
  line.option("INPUT", o.input);
  line.option("OUTPUT", o.output);
  line.option("--scheme", arguments->scheme);
  line.option("--format", o.format);
  const CLI::Validator pattern(pattern_fault, "");
  line.option("--ignore", o.ignore)->check(pattern);
  line.option("--include", o.include)->check(pattern);
  line.option("--fuse", o.fuse)->check(CLI::Validator(check_fuse, ""));
  add_run_options(line, o, arguments->run);
  line.option("--statistics", o.statistics);
  line.option("--recipe", o.recipe);
  line.option("--merge", o.merge);
  line.option("--bits", o.bits)->check(CLI::Range(4.5, 16.0));
  line.option("--size", arguments->size);
  line.option("--sweeps", o.sweeps)->check(CLI::Range(0, 1000));
  line.option("--rank", arguments->rank);
  line.option("--ranks", arguments->ranks);
  line.option("--push", arguments->push);
  line.flag("--json", arguments->json);
  line.flag("--drop", o.drop);
  line.flag("--force", o.force);
  line.flag("--keep-dtype", o.keep_dtype);
  line.callback([arguments] { run(*arguments); });
}

}  // namespace nvfp4::cli
