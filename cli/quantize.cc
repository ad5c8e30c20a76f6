#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "command_line.h"
#include "commands.h"
#include "nvfp4/checkpoint/checkpoint.h"
#include "nvfp4/error.h"
#include "quantizers/method.h"
#include "terminal.h"
#include "write_run.h"

namespace nvfp4::cli {
namespace {

struct QuantizeArguments {
  QuantizeCheckpointOptions options;
  RunArguments run;
  bool json = false;
  std::string ranks = "1";
  std::optional<int> rank;
};

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

void check(QuantizeArguments& arguments) {
  const Rank rank = rank_of(arguments.rank, arguments.ranks);
  arguments.options.rank = rank.rank;
  arguments.options.ranks = rank.ranks;
}

/// Throws UnsupportedError if no weight is quantized, unless a pattern, recipe or size requested
/// that.
void require_any_quantized(const QuantizeReport& report, const QuantizeCheckpointOptions& options) {
  constexpr std::string_view kPlain[] = {"kept", "merged", "cast", "dequantized"};
  if (!options.ignore.empty() || options.recipe || options.bits || options.size || !report.complete)
    return;
  std::map<std::string_view, std::uint64_t> reasons;  // bytes that each reason keeps
  for (const TensorReport& t : report.tensors) {
    if (std::ranges::find(kPlain, t.action) == std::end(kPlain)) return;
    reasons[t.reason] += t.bytes_before;
  }
  const auto most = std::ranges::max_element(reasons, {}, [](const auto& r) { return r.second; });
  throw UnsupportedError(
      fmt::format("{}: no tensor can be quantized: {}{}", options.input.string(),
                  most == reasons.end() ? "it has none" : most->first,
                  report.dry_run ? "" : fmt::format("; {} is a copy", options.output.string())));
}

void run(QuantizeArguments& arguments) {
  QuantizeCheckpointOptions& options = arguments.options;
  if (options.format.empty()) options.format = default_format(options.output);
  const QuantizeReport report = run_reported("quantize", is_one_file(options.format), options,
                                             arguments.run, quantize_checkpoint);
  require_any_quantized(report, options);
  if (arguments.json) return print(to_json(report) + "\n");
  if (arguments.run.quiet) return;
  print_summary(report, {options.input, options.output,
                         fmt::format("{}, scheme {}, format {}", report.method,
                                     scheme_name(report.scheme), options.format)});
}

}  // namespace

void add_quantize(CLI::App& app) {
  auto arguments = std::make_shared<QuantizeArguments>();
  QuantizeCheckpointOptions& o = arguments->options;
  CommandLine line(app, "quantize");
  line.model("INPUT", o.input);
  line.option("OUTPUT", o.output);
  line.word("--scheme", [&o](const std::string& name) { o.scheme = scheme_from_name(name); });
  line.option("--format", o.format);
  CommandLine::check(line.option("--ignore", o.ignore), check_pattern);
  CommandLine::check(line.option("--include", o.include), check_pattern);
  line.option("--fuse", o.fuse)->check(CLI::Validator(check_fuse, ""));
  CommandLine::check(line.option("--method", o.method), method_from_text);
  add_run_options(line, o, arguments->run);
  line.option("--statistics", o.statistics);
  line.option("--recipe", o.recipe);
  line.option("--merge", o.merge);
  CLI::Option* bits = line.number("--bits", o.bits, 4.5, 16.0);
  line.word("--size", [&o](const std::string& text) { o.size = size_from_text(text); })
      ->excludes(bits);
  line.number("--rank", arguments->rank, 0, kMostRanks);
  line.option("--ranks", arguments->ranks);
  line.flag("--json", arguments->json);
  add_allow(line, o.allow);
  line.flag("--keep-dtype", o.keep_dtype);
  line.callback([arguments] { run(*arguments); }, [arguments] { check(*arguments); });
}

}  // namespace nvfp4::cli
