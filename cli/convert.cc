#include "nvfp4/checkpoint/convert.h"

#include <fmt/format.h>

#include <memory>

#include "command_line.h"
#include "commands.h"
#include "terminal.h"
#include "write_run.h"

namespace nvfp4::cli {
namespace {

struct ConvertArguments {
  ConvertOptions options;
  RunArguments run;
  bool json = false;
};

void check(ConvertOptions& options) {
  const std::string of_name = default_format(options.output);
  if (options.to.empty() && is_one_file(of_name)) options.to = of_name;
  if (options.to.empty()) throw CLI::RequiredError("--to");
}

void run(ConvertArguments& arguments) {
  ConvertOptions& options = arguments.options;
  const QuantizeReport report =
      run_reported("convert", is_one_file(options.to), options, arguments.run, convert_checkpoint);
  if (arguments.json) return print(to_json(report) + "\n");
  if (!arguments.run.quiet)
    print_summary(report, {options.input, options.output, "to " + options.to});
}

}  // namespace

void add_convert(CLI::App& app) {
  auto arguments = std::make_shared<ConvertArguments>();
  ConvertOptions& o = arguments->options;
  CommandLine line(app, "convert");
  line.model("INPUT", o.input);
  line.option("OUTPUT", o.output);
  line.option("--to", o.to);
  line.word("--scheme", [&o](const std::string& name) { o.scheme = scheme_from_name(name); });
  line.option("--method", o.method);
  add_run_options(line, o, arguments->run);
  line.flag("--json", arguments->json);
  add_allow(line, o.allow);
  line.callback([arguments] { run(*arguments); }, [arguments] { check(arguments->options); });
}

}  // namespace nvfp4::cli
