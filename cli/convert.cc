#include "nvfp4/convert.h"

#include <fmt/format.h>

#include <memory>
#include <optional>

#include "command_line.h"
#include "commands.h"
#include "interrupt.h"
#include "report_file.h"
#include "summary.h"
#include "terminal.h"

namespace nvfp4::cli {
namespace {

struct ConvertArguments {
  ConvertOptions options;
  RunArguments run;
  bool json = false;
  std::string scheme;
};

void run(ConvertArguments& arguments) {
  ConvertOptions& options = arguments.options;
  if (!arguments.scheme.empty()) options.scheme = scheme_from_name(arguments.scheme);
  const std::string of_name = default_format(options.output);
  if (options.to.empty() && is_one_file(of_name)) options.to = of_name;
  if (options.to.empty()) throw CLI::RequiredError("--to");
  find_models(options.dry_run ? Download::no : Download::yes, options.input);
  finish_run_options(options, arguments.run);
  std::optional<ReportFile> report_file;
  if (!arguments.run.report.empty())
    report_file.emplace("--report", arguments.run.report, std::vector{options.input},
                        options.input_amax);
  if (!options.dry_run) on_interrupt(/*resumes=*/!is_one_file(options.to));
  const QuantizeReport report = [&] {
    ProgressBar progress("convert", arguments.run.quiet);
    options.progress = progress.callback();
    return convert_checkpoint(options);
  }();
  if (report_file) report_file->write(to_json(report) + "\n");
  print_warnings(report);
  if (arguments.json) return print(to_json(report) + "\n");
  if (!arguments.run.quiet)
    print_summary(report, {options.input, options.output, "to " + options.to});
}

}  // namespace

void add_convert(CLI::App& app) {
  auto arguments = std::make_shared<ConvertArguments>();
  ConvertOptions& o = arguments->options;
  CommandLine line(app, "convert");
  line.option("INPUT", o.input);
  line.option("OUTPUT", o.output);
  line.option("--to", o.to);
  line.option("--scheme", arguments->scheme);
  add_run_options(line, o, arguments->run);
  line.flag("--json", arguments->json);
  line.flag("--drop", o.drop);
  line.flag("--force", o.force);
  line.flag("--decode", o.decode);
  line.callback([arguments] { run(*arguments); });
}

}  // namespace nvfp4::cli
