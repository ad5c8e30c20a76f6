#include <fmt/format.h>
#include <fmt/ranges.h>

#include <memory>
#include <optional>
#include <string>

#include "commands.h"
#include "interrupt.h"
#include "nvfp4/checkpoint.h"
#include "nvfp4/error.h"
#include "nvfp4/runtime.h"
#include "report_file.h"
#include "summary.h"
#include "terminal.h"

namespace nvfp4::cli {
namespace {

struct Arguments {
  QuantizeCheckpointOptions options;
  std::string scheme = "nvfp4", scale_search = "mse", device = "cpu";
  std::string report;
  bool quiet = false;
};

constexpr const char* kFooter = R"(
INPUT may hold BF16, FP16, FP32, FP8 and MXFP4 weights. Those that are NVFP4
already keep their codes and scales; --ignore dequantizes them.

Patterns are exact names, globs (*, ?), or "re:" and a regular expression, in
Perl's syntax, which Python's is near to; they match the whole name of the
tensor or of its module.

Environment:
  NVFP4_BACKEND           backend when --backend is not given
  NVFP4_THREADS           threads when --threads is not given
  NO_COLOR                no colours, if set to anything

Examples:
  nvfp4 quantize Llama-3.1-8B Llama-3.1-8B-NVFP4
  nvfp4 quantize DeepSeek-V3 out --ignore 're:.*self_attn.*' --report out.json
  nvfp4 quantize Llama-3.1-8B out --scheme nvfp4a16 --format compressed-tensors
  nvfp4 quantize DeepSeek-V3 out --device auto
)";

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

std::string check_device(const std::string& name) try {
  device_from_name(name);  // whether it can be used is not a question of usage
  return {};
} catch (const ValueError& e) {
  return e.what();
}

void run(Arguments& arguments) {
  QuantizeCheckpointOptions& options = arguments.options;
  options.scheme = arguments.scheme == "nvfp4" ? Scheme::nvfp4 : Scheme::nvfp4a16;
  options.quantizer = quantizer_from_name(arguments.scale_search);
  options.device = device_from_name(arguments.device);
  options.release_device = true;
  if (options.format.empty()) options.format = default_format(options.output);
  check_apart(options.input, options.output);
  std::optional<ReportFile> report_file;
  if (!arguments.report.empty())
    report_file.emplace("--report", arguments.report, std::vector{options.input},
                        options.input_amax);
  if (!options.dry_run) on_interrupt(/*resumes=*/options.format != "gguf");
  const QuantizeReport report = [&] {
    ProgressBar progress("quantize", arguments.quiet);
    options.progress = progress.callback();
    return quantize_checkpoint(options);
  }();
  if (report_file) report_file->write(to_json(report) + "\n");
  print_warnings(report);
  if (arguments.quiet) return;
  print_summary(report, {options.input, options.output,
                         fmt::format("{}, scheme {}, format {}", arguments.scale_search,
                                     arguments.scheme, options.format)});
}

}  // namespace

void add_quantize(CLI::App& app) {
  auto arguments = std::make_shared<Arguments>();
  QuantizeCheckpointOptions& o = arguments->options;
  CLI::App* command = app.add_subcommand("quantize", "Quantize a checkpoint to NVFP4");
  const CLI::Validator pattern(pattern_fault, "");
  const auto patterns = [&](const char* name, std::vector<std::string>& to, const char* text) {
    return command->add_option(name, to, text)->allow_extra_args(false);
  };

  command->add_option("INPUT", o.input, "model folder, or one .safetensors or .gguf file")
      ->required();
  command->add_option("OUTPUT", o.output, "folder to write, new or empty; or a .gguf file")
      ->required();
  command
      ->add_option("--scheme", arguments->scheme,
                   "nvfp4: 4-bit weights and activations, the default; nvfp4a16: weights only")
      ->option_text("NAME")
      ->check(CLI::IsMember({"nvfp4", "nvfp4a16"}));
  command
      ->add_option("--format", o.format,
                   "modelopt (the default), compressed-tensors; comfyui: one file in OUTPUT; gguf, "
                   "the default for an OUTPUT of that ending: a file for llama.cpp")
      ->option_text("NAME")
      ->check(CLI::IsMember({"modelopt", "compressed-tensors", "comfyui", "gguf"}));
  command
      ->add_option("--quantizer,--scale-search", arguments->scale_search,
                   "how block scales are chosen: max, four_over_six, or mse, the default: least "
                   "squared error over all scales")
      ->option_text("NAME")
      ->check(CLI::IsMember(quantizer_names()));
  patterns("--ignore", o.ignore, "tensors to leave alone, besides the usual ones; repeatable")
      ->option_text("PATTERN")
      ->check(pattern);
  patterns("--include", o.include, "tensors to quantize though usually left alone; repeatable")
      ->option_text("PATTERN")
      ->check(pattern);
  patterns("--fuse", o.fuse, "modules that share one global scale, such as w1,w3; repeatable")
      ->option_text("NAMES")
      ->check(CLI::Validator(check_fuse, ""));
  command
      ->add_option(
          "--input-amax", o.input_amax,
          "JSON: module name or pattern to the largest activation; names count first, then "
          "the first pattern that matches; 2688 if none does")
      ->option_text("FILE");
  add_threads(*command);
  command
      ->add_option("--device", arguments->device,
                   "what encodes the weights: cpu, the default; cuda or cuda:N, a GPU; auto, the "
                   "first GPU if it can be used. The output is the same")
      ->option_text("NAME")
      ->check(CLI::Validator(check_device, ""));
  std::vector<std::string> names;
  for (const BackendInfo& b : backends()) names.push_back(b.name);
  command
      ->add_option("--backend", o.backend,
                   fmt::format("of the CPU: {}; the best if not given", fmt::join(names, ", ")))
      ->option_text("NAME")
      ->check(CLI::IsMember(names));
  add_report(*command, arguments->report);
  add_drop(*command, o.drop);
  add_force(*command, o.force);
  command->add_flag("--keep-dtype", o.keep_dtype,
                    "leave the rest of a model in FP32 as it is; else it becomes BF16, but for "
                    "router biases and the like");
  add_run_flags(*command, o.resume, o.overwrite, o.dry_run, arguments->quiet);
  command->footer(kFooter);
  command->callback([arguments] { run(*arguments); });
}

}  // namespace nvfp4::cli
