#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <memory>
#include <utility>

#include "checkpoint/choose/choose.h"
#include "checkpoint/formats/format.h"
#include "checkpoint/io/posix_file.h"
#include "checkpoint/run/start.h"
#include "checkpoint/source/model_folder.h"
#include "checkpoint/verify/codes.h"
#include "checkpoint/write/write_plan.h"
#include "core/printable.h"
#include "core/require.h"
#include "nvfp4/checkpoint/convert.h"

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

/// Reads a model folder and writes another one, as described at quantize_checkpoint(). The options
/// decide what happens to each tensor. Throws as quantize_checkpoint() does.
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

}  // namespace
}  // namespace nvfp4::checkpoint

namespace nvfp4 {

using namespace checkpoint;

std::vector<std::string> method_names() {
  std::vector<std::string> names;
  for (const Method& method : methods()) names.emplace_back(method.name);
  return names;
}

std::vector<FormatInfo> output_formats() {
  std::vector<FormatInfo> formats;
  for (const CheckpointFormat* f : checkpoint_formats())
    formats.push_back({std::string(f->name), std::string(f->note), std::string(f->extension)});
  return formats;
}

std::string default_format(const std::filesystem::path& output) {
  return std::string(default_checkpoint_format(output).name);
}

std::uint64_t size_from_text(const std::string& text) {
  constexpr std::pair<std::string_view, double> kUnits[] = {
      {"", 1},      {"B", 1},        {"kB", 1e3},     {"MB", 1e6},     {"GB", 1e9},
      {"TB", 1e12}, {"KiB", 0x1p10}, {"MiB", 0x1p20}, {"GiB", 0x1p30}, {"TiB", 0x1p40}};
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  std::string_view unit(end, static_cast<std::size_t>(text.data() + text.size() - end));
  if (unit.starts_with(' ')) unit.remove_prefix(1);
  const auto* known = std::ranges::find(kUnits, unit, &std::pair<std::string_view, double>::first);
  require<ValueError>(error == std::errc{} && known != std::end(kUnits) && number >= 0 &&
                          number * known->second < 0x1p62,
                      "size = '{}', must be a number and B, kB, MB, GB, TB, KiB, MiB, GiB or TiB",
                      printable(text));
  return static_cast<std::uint64_t>(number * known->second);
}

QuantizeReport quantize_checkpoint(const QuantizeCheckpointOptions& options) {
  return transform_checkpoint({options});
}

std::vector<std::string> conversion_targets() {
  std::vector<std::string> names;
  for (const CheckpointFormat* format : checkpoint_formats()) names.emplace_back(format->name);
  names.insert(names.end(), {"bf16", "fp16"});
  return names;
}

QuantizeReport convert_checkpoint(const ConvertOptions& options) {
  const std::vector<std::string> targets = conversion_targets();
  const CheckpointFormat& of_name = default_checkpoint_format(options.output);
  const std::string to =
      options.to.empty() && !of_name.extension.empty() ? std::string(of_name.name) : options.to;
  require<ValueError>(std::ranges::find(targets, to) != targets.end(), ErrorCode::not_a_choice,
                      "to = '{}', must be one of {}", to, fmt::join(targets, ", "));
  TransformOptions transform;
  static_cast<RunOptions&>(transform) = options;
  transform.allow = options.allow;
  transform.rest_is_q8_0 = options.rest == "q8_0";
  require<ValueError>(!transform.rest_is_q8_0 || to == "gguf",
                      "rest = q8_0 is for GGUF, not for {}", to);
  if (to == "bf16" || to == "fp16") {
    transform.task = TransformOptions::Task::decode;
    transform.plain = to == "bf16" ? safetensors::DType::bf16 : safetensors::DType::f16;
  } else {
    transform.task = TransformOptions::Task::convert;
    transform.format = to;
    transform.takes_scheme = !options.scheme;
    if (options.scheme) transform.scheme = *options.scheme;
  }
  return transform_checkpoint(std::move(transform));
}

}  // namespace nvfp4
