#include "checkpoint/run/transform.h"

#include <algorithm>
#include <map>
#include <memory>
#include <utility>

#include "checkpoint/choose/choose.h"
#include "checkpoint/io/posix_file.h"
#include "checkpoint/run/start.h"
#include "checkpoint/source/adapter.h"
#include "checkpoint/source/model_folder.h"
#include "checkpoint/verify/faults.h"
#include "checkpoint/write/write_plan.h"

namespace nvfp4::checkpoint {
namespace {

/// Throws UnsupportedError if no weight is quantized, unless a pattern, a rule of the recipe or a
/// size excludes one. The part of a model around its layers, which calibration writes, has none.
void require_any_quantized(const Plan& plan, const TransformOptions& options) {
  constexpr std::string_view kPlain[] = {"kept", "merged", "cast", "dequantized"};
  constexpr std::string_view kAround[] = {"embedding", "lm_head", "norm"};
  if (options.has_budget()) return;
  if (std::ranges::any_of(plan.rules, [](const RecipeRuleReport& rule) {
        return rule.action == "keep" && rule.decided > 0;
      }))
    return;
  std::map<std::string_view, std::uint64_t> reasons;  // bytes that each reason keeps
  for (const PlannedTensor& t : plan.tensors) {
    if (std::ranges::find(kPlain, t.action) == std::end(kPlain)) return;
    if (t.reason.starts_with("--ignore ")) return;
    if (std::ranges::find(kAround, t.kind) == std::end(kAround))
      reasons[t.reason] += t.bytes_before;
  }
  if (reasons.empty() && !plan.tensors.empty()) return;
  const auto most = std::ranges::max_element(reasons, {}, [](const auto& r) { return r.second; });
  throw UnsupportedError(fmt::format("{}: no tensor can be quantized: {}", options.input.string(),
                                     most == reasons.end() ? "it has none" : most->first));
}

}  // namespace

QuantizeReport transform_checkpoint(TransformOptions options) try {
  RunContext run = start_run(options);
  ModelFolder model = open_model_folder(options.input);
  add_adapters(model, options.merge);
  using Task = TransformOptions::Task;
  std::vector<std::string> warnings =
      take_faults(model, {.force = options.allow.broken_scales,
                          .inputs = options.task != Task::decode,
                          .caches = options.layers && !options.layers->kv_cache.empty(),
                          .globals = options.task == Task::convert,
                          .ignores = options.task == Task::quantize});
  if (options.takes_scheme) options.scheme = model.scheme;
  ChosenLayers choice;
  if (options.has_budget()) {
    choice = choose_recipe(model, options);
    options.layers = choice.recipe;
  }
  Plan plan = make_plan(model, options);
  if (options.task == Task::quantize) require_any_quantized(plan, options);
  const std::unique_ptr<Output> output = make_output(model, plan, options);
  QuantizeReport report = write_plan(plan, options, run, *output);
  report.curve = std::move(choice.curve);
  report.curve_over = choice.curve_over;
  report.error_of = choice.error_of;
  warnings.insert(warnings.end(), choice.warnings.begin(), choice.warnings.end());
  report.warnings.insert(report.warnings.begin(), warnings.begin(), warnings.end());
  return report;
} catch (const std::filesystem::filesystem_error& e) {
  throw_io_error(e);
}

}  // namespace nvfp4::checkpoint
