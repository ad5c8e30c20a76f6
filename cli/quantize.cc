#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "checkpoint/run/start.h"
#include "command_line.h"
#include "commands.h"
#include "nvfp4/checkpoint/checkpoint.h"
#include "nvfp4/error.h"
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

/// Throws UnsupportedError if no weight is quantized, unless a pattern, a rule of the recipe or a
/// size excludes one.
void require_any_quantized(const QuantizeReport& report, const QuantizeCheckpointOptions& options) {
  constexpr std::string_view kPlain[] = {"kept", "merged", "cast", "dequantized"};
  if (options.bits || options.size || !report.complete) return;
  if (std::ranges::any_of(report.rules, [](const RecipeRuleReport& rule) {
        return rule.action == "keep" && rule.decided > 0;
      }))
    return;
  std::map<std::string_view, std::uint64_t> reasons;  // bytes that each reason keeps
  for (const TensorReport& t : report.tensors) {
    if (std::ranges::find(kPlain, t.action) == std::end(kPlain)) return;
    if (t.reason.starts_with("--ignore ")) return;
    reasons[t.reason] += t.bytes_before;
  }
  const auto most = std::ranges::max_element(reasons, {}, [](const auto& r) { return r.second; });
  throw UnsupportedError(
      fmt::format("{}: no tensor can be quantized: {}{}", options.input.string(),
                  most == reasons.end() ? "it has none" : most->first,
                  report.dry_run ? "" : fmt::format("; {} is a copy", options.output.string())));
}

void run(QuantizeArguments& options) {
  if (options.format.empty()) options.format = default_format(options.output);
  const QuantizeReport report = run_reported<QuantizeCheckpointOptions>(
      "quantize", is_one_file(options.format), options, options.quiet, quantize_checkpoint);
  require_any_quantized(report, options);
  if (options.json) return print(to_json(report) + "\n");
  if (options.quiet) return;
  print_summary(report, {options.input, options.output,
                         fmt::format("{}, scheme {}", report.method, scheme_name(report.scheme)),
                         options.format});
}

}  // namespace

void add_quantize(CLI::App& app) {
  auto arguments = std::make_shared<QuantizeArguments>();
  CommandLine line(app, "quantize", *arguments);
  line.callback([arguments] { run(*arguments); }, [arguments] { check(*arguments); });
}

}  // namespace nvfp4::cli
