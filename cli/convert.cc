#include "nvfp4/convert.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <memory>
#include <optional>

#include "commands.h"
#include "interrupt.h"
#include "report_file.h"
#include "summary.h"
#include "terminal.h"

namespace nvfp4::cli {
namespace {

struct Arguments {
  ConvertOptions options;
  std::string scheme, scale_search = "mse", report;
  bool quiet = false;
};

constexpr const char* kFooter = R"(
NVFP4 weights are not rounded again: codes and scales change places, and the
same tensors come back from a conversion back. MXFP4 weights keep their values.

Examples:
  nvfp4 convert Llama-3.1-8B-NVFP4 out --to compressed-tensors
  nvfp4 convert gpt-oss-20b out --to modelopt
  nvfp4 convert DeepSeek-V3 out --to modelopt
  nvfp4 convert Llama-3.1-8B-NVFP4 out --to bf16
  nvfp4 convert Llama-3.1-8B-NVFP4 llama.gguf --to gguf   # for llama.cpp
  nvfp4 convert llama.gguf out --to modelopt
)";

void run(Arguments& arguments) {
  ConvertOptions& options = arguments.options;
  if (!arguments.scheme.empty())
    options.scheme = arguments.scheme == "nvfp4" ? Scheme::nvfp4 : Scheme::nvfp4a16;
  options.quantizer = quantizer_from_name(arguments.scale_search);
  if (options.to.empty() && default_format(options.output) == "gguf") options.to = "gguf";
  if (options.to.empty()) throw CLI::RequiredError("--to");
  check_apart(options.input, options.output);
  std::optional<ReportFile> report_file;
  if (!arguments.report.empty())
    report_file.emplace("--report", arguments.report, std::vector{options.input},
                        options.input_amax);
  if (!options.dry_run) on_interrupt(/*resumes=*/options.to != "gguf");
  const QuantizeReport report = [&] {
    ProgressBar progress("convert", arguments.quiet);
    options.progress = progress.callback();
    return convert_checkpoint(options);
  }();
  if (report_file) report_file->write(to_json(report) + "\n");
  print_warnings(report);
  if (!arguments.quiet) print_summary(report, {options.input, options.output, "to " + options.to});
}

}  // namespace

void add_convert(CLI::App& app) {
  auto arguments = std::make_shared<Arguments>();
  ConvertOptions& o = arguments->options;
  CLI::App* command = app.add_subcommand("convert", "Write a quantized checkpoint in another form");
  command
      ->add_option("INPUT", o.input,
                   "model folder, .safetensors or .gguf file: NVFP4 of any kind, MXFP4, FP8")
      ->required();
  command->add_option("OUTPUT", o.output, "folder to write, new or empty; --to gguf: a .gguf file")
      ->required();
  const std::vector<std::string> targets = conversion_targets();
  command
      ->add_option(
          "--to", o.to,
          fmt::format("{}; gguf if not given and OUTPUT ends so", fmt::join(targets, ", ")))
      ->option_text("FORM")
      ->check(CLI::IsMember(targets));
  command
      ->add_option("--scheme", arguments->scheme,
                   "nvfp4 (W4A4) or nvfp4a16 (weights only); as in the input if not given")
      ->option_text("NAME")
      ->check(CLI::IsMember({"nvfp4", "nvfp4a16"}));
  command
      ->add_option("--quantizer,--scale-search", arguments->scale_search,
                   "how block scales of FP8 weights are chosen: max, four_over_six, or mse, the "
                   "default")
      ->option_text("NAME")
      ->check(CLI::IsMember(quantizer_names()));
  command
      ->add_option("--input-amax", o.input_amax,
                   "for FP8 and MXFP4 weights, JSON: module name or pattern to the largest "
                   "activation; 2688 if not given")
      ->option_text("FILE");
  add_threads(*command);
  add_report(*command, arguments->report);
  add_drop(*command, o.drop);
  add_force(*command, o.force);
  command->add_flag(
      "--decode", o.decode,
      "FP8 and MXFP4 beside 4-bit weights that FORM cannot hold become BF16, else they "
      "are an error");
  add_run_flags(*command, o.resume, o.overwrite, o.dry_run, arguments->quiet);
  command->footer(kFooter);
  command->callback([arguments] { run(*arguments); });
}

}  // namespace nvfp4::cli
