#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <regex>
#include <string>
#include <tuple>

#include "commands.h"
#include "interrupt.h"
#include "nvfp4/checkpoint.h"
#include "nvfp4/error.h"
#include "nvfp4/runtime.h"
#include "report_file.h"
#include "terminal.h"

namespace nvfp4::cli {
namespace {

namespace fs = std::filesystem;

struct Arguments {
  QuantizeCheckpointOptions options;
  std::string scheme = "nvfp4", scale_search = "mse", device = "cpu";
  std::string report;
  bool quiet = false;
};

constexpr const char* kFooter = R"(
Patterns are exact names, globs (*, ?), or "re:" and a regular expression; they
match the tensor's name or its module's.

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

std::string check_pattern(const std::string& pattern) {
  if (!pattern.starts_with("re:")) return {};
  try {
    const std::regex compiled(pattern.substr(3));
    return {};
  } catch (const std::regex_error& e) {
    return fmt::format("'{}' is not a regular expression: {}", pattern, e.what());
  }
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

/// Lexically, after links are resolved; what else can be wrong with the folders is found later.
void check_apart(const fs::path& input, const fs::path& output) {
  std::error_code error;
  const bool folder = fs::is_directory(input, error);
  const fs::path given = fs::absolute(input, error);
  const fs::path in = fs::weakly_canonical(folder ? given : given.parent_path(), error);
  if (error) return;
  const fs::path out = fs::weakly_canonical(fs::absolute(output, error), error);
  if (error) return;
  const auto inside = [](const fs::path& a, const fs::path& b) {
    const fs::path way = a.lexically_relative(b);
    return !way.empty() && *way.begin() != "..";
  };
  if (inside(in, out) || (folder && inside(out, in)))
    throw CLI::ValidationError(
        "OUTPUT", fmt::format("{} and INPUT {} must not be the same or inside each other",
                              output.string(), input.string()));
}

/// "cpu", or "cuda:0, NVIDIA H200".
std::string describe(Device device) {
  std::string text = device_name(device);
  for (const DeviceInfo& gpu : cuda_devices())
    if (gpu.device == device) text += ", " + gpu.name;
  return text;
}

struct Group {
  std::int64_t tensors = 0;
  std::uint64_t before = 0, after = 0;
};

std::int64_t elements(const TensorReport& t) {
  std::int64_t n = 1;
  for (const std::int64_t d : t.shape) n *= d;
  return n;
}

std::string tensor_table(const QuantizeReport& report, const Style& style) {
  std::map<std::tuple<bool, std::string, std::string>, Group> groups;
  Group total;
  for (const TensorReport& t : report.tensors) {
    Group& group = groups[{t.action != "quantized", t.kind, t.reason}];
    for (Group* g : {&group, &total}) {
      g->tensors += 1;
      g->before += t.bytes_before;
      g->after += t.bytes_after;
    }
  }
  // The reasons take what is left of the line, and more lines if need be.
  Table narrow("llrrrl"), table("llrrrl");
  const auto add = [&](Table& to, std::size_t reason_width) {
    to.add({style.dim("tensors"), "", style.dim("count"), style.dim("before"), style.dim("after"),
            ""});
    std::string last_action;
    for (const auto& [key, group] : groups) {
      const auto& [kept, kind, reason] = key;
      const std::string action = kept ? "kept" : "quantized";
      const auto lines = wrap_words(clean(reason), std::max<std::size_t>(reason_width, 12));
      const std::string shown = action == last_action ? "" : action;
      to.add({kept ? shown : style.green(shown), clean(kind), fmt::format("{}", group.tensors),
              human_bytes(group.before), human_bytes(group.after),
              reason_width == 0 ? "" : style.dim(lines[0])});
      for (std::size_t i = 1; i < lines.size() && reason_width > 0; ++i)
        to.add({"", "", "", "", "", style.dim(lines[i])});
      last_action = action;
    }
    to.add({style.bold("total"), "", style.bold(fmt::format("{}", total.tensors)),
            style.bold(human_bytes(report.bytes_before)),
            style.bold(human_bytes(report.bytes_after)), ""});
  };
  add(narrow, 0);
  add(table, 80 - std::min<std::size_t>(narrow.width_before_last(), 68));
  return table.text();
}

void print_summary(const QuantizeReport& report, const Arguments& arguments) {
  const Style style(stdout);
  const QuantizeCheckpointOptions& options = arguments.options;
  std::string out = fmt::format(
      "{} {} {}\n\n", style.bold(clean(options.input.string())), arrow(),
      style.bold(clean(options.output.string())) + (report.dry_run ? "  (dry run)" : ""));
  out += tensor_table(report, style) + '\n';

  double weights = 0, bits = 0, error = 0, norm = 0;
  bool measured = !report.dry_run;
  for (const TensorReport& t : report.tensors) {
    if (t.action != "quantized") continue;
    weights += static_cast<double>(elements(t));
    bits += static_cast<double>(t.bytes_after) * 8;
    error += t.squared_error;
    norm += t.squared_norm;
    measured &= t.measured;
  }
  Table facts("ll");
  facts.add({style.dim("size"),
             fmt::format(
                 "{} {} {}, {} smaller", human_bytes(report.bytes_before), arrow(),
                 human_bytes(report.bytes_after),
                 style.bold(fmt::format("{:.2f}x", static_cast<double>(report.bytes_before) /
                                                       static_cast<double>(std::max<std::uint64_t>(
                                                           report.bytes_after, 1)))))});
  if (weights > 0) {
    std::string text = fmt::format("{} at {:.2f} bits each", human_count(weights), bits / weights);
    if (measured)
      text += fmt::format(", relative error {}, SQNR {} dB",
                          style.bold(number(100 * std::sqrt(error / norm), "{:.2f} %")),
                          style.bold(number(10 * std::log10(norm / error), "{:.2f}")));
    facts.add({style.dim("weights"), text});
  }
  facts.add({style.dim("scales"), fmt::format("{}, scheme {}, format {}", arguments.scale_search,
                                              arguments.scheme, options.format)});
  facts.add({style.dim("device"), describe(report.device)});
  if (!report.dry_run) {
    facts.add(
        {style.dim("time"),
         fmt::format("{}, {:.2f} GB/s of input on {} ({} thread{})", human_duration(report.seconds),
                     static_cast<double>(report.bytes_before) / report.seconds / 1e9,
                     report.backend, report.threads, report.threads == 1 ? "" : "s")});
    facts.add({style.dim("memory"), human_bytes(report.peak_memory_bytes) + " at most"});
    std::string shards = fmt::format("{} shard{}", report.shards, report.shards == 1 ? "" : "s");
    if (report.shards_reused > 0)
      shards += fmt::format(", {} of them from the interrupted run", report.shards_reused);
    facts.add(
        {style.dim("output"), fmt::format("{} ({})", clean(options.output.string()), shards)});
  }
  print(out + facts.text());
}

void run(Arguments& arguments) {
  QuantizeCheckpointOptions& options = arguments.options;
  options.scheme = arguments.scheme == "nvfp4" ? Scheme::nvfp4 : Scheme::nvfp4a16;
  options.quantizer = quantizer_from_name(arguments.scale_search);
  options.device = device_from_name(arguments.device);
  check_apart(options.input, options.output);
  std::optional<ReportFile> report_file;
  if (!arguments.report.empty()) report_file.emplace(arguments.report, options);
  if (!options.dry_run)
    on_interrupt(
        fmt::format("\nnvfp4: interrupted; to go on: nvfp4 quantize '{}' '{}' --resume "
                    "(and the same options)\n",
                    clean(options.input.string()), clean(options.output.string())));
  const QuantizeReport report = [&] {
    ProgressBar progress("quantize", arguments.quiet);
    options.progress = progress.callback();
    return quantize_checkpoint(options);
  }();
  if (report_file) report_file->write(to_json(report) + "\n");
  const Style style(stderr);
  for (const std::string& warning : report.warnings)
    fmt::print(stderr, "{} {}\n", style.yellow("nvfp4: warning:"), clean(warning));
  if (!arguments.quiet) print_summary(report, arguments);
}

}  // namespace

void add_quantize(CLI::App& app) {
  auto arguments = std::make_shared<Arguments>();
  QuantizeCheckpointOptions& o = arguments->options;
  CLI::App* command = app.add_subcommand("quantize", "Quantize a checkpoint to NVFP4");
  const CLI::Validator pattern(check_pattern, "");
  const auto patterns = [&](const char* name, std::vector<std::string>& to, const char* text) {
    return command->add_option(name, to, text)->allow_extra_args(false);
  };

  command->add_option("INPUT", o.input, "model folder, or one .safetensors file")->required();
  command->add_option("OUTPUT", o.output, "folder to write; new or empty")->required();
  command
      ->add_option("--scheme", arguments->scheme,
                   "nvfp4: 4-bit weights and activations, the default; nvfp4a16: weights only")
      ->option_text("NAME")
      ->check(CLI::IsMember({"nvfp4", "nvfp4a16"}));
  command->add_option("--format", o.format, "modelopt (the default) or compressed-tensors")
      ->option_text("NAME")
      ->check(CLI::IsMember({"modelopt", "compressed-tensors"}));
  command
      ->add_option("--scale-search", arguments->scale_search,
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
      ->add_option("--input-amax", o.input_amax,
                   "JSON: module name or pattern to the largest activation; 2688 if not given")
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
  CLI::Option* resume =
      command->add_flag("--resume", o.resume, "go on with an interrupted run, same options");
  command->add_flag("--overwrite", o.overwrite, "replace what OUTPUT holds")->excludes(resume);
  command->add_option("--report", arguments->report, "write everything about each tensor as JSON")
      ->option_text("FILE");
  command->add_flag("--dry-run", o.dry_run, "only say what would be done");
  command->add_flag("-q,--quiet", arguments->quiet, "no progress, no summary");
  command->footer(kFooter);
  command->callback([arguments] { run(*arguments); });
}

}  // namespace nvfp4::cli
