#include "checkpoint/plan/supply.h"

#include "core/printable.h"
#include "core/require.h"
#include "quantizers/gptq.h"

namespace nvfp4::checkpoint {
namespace {

/// The number of units that a warning lists, and the first of them.
struct Listed {
  std::size_t count = 0;
  std::string first;
  void add(const Unit& unit) {
    if (count++ == 0) first = unit.slice.module;
  }
  std::string text() const { return printable(first) + (count > 1 ? ", ..." : ""); }
};

}  // namespace

void supply_statistics(Plan& plan, const TransformOptions& options) {
  const Method& method = *options.chosen.method;
  require<ValueError>(method.needs == Needs::nothing || options.statistics,
                      ErrorCode::no_statistics, "method = {}: needs {}, which --statistics gives",
                      method.name, needs_text(method.needs));
  if (!options.statistics) return;
  plan.statistics_fingerprint = plan.statistics->fingerprint();
  const std::string file = options.statistics->string();
  require<ValueError>(method.needs != Needs::gram || plan.statistics->has_grams(),
                      ErrorCode::no_statistics,
                      "method = {}: {} does not hold {}; nvfp4-calibrate --keep-gram "
                      "writes it",
                      method.name, file, needs_text(method.needs));
  std::size_t asked = 0, found = 0;
  Listed missing, unseen, diagonal, few;
  for (Unit& unit : plan.units) {
    if (unit.work == Work::decode) continue;
    const bool quantized = unit.work == Work::quantize;
    asked += quantized;
    const InputStatistics* s = plan.statistics->find(unit.slice.module);
    if (s == nullptr) {
      if (quantized) missing.add(unit);
      continue;
    }
    require<ValueError>(s->depth == unit.slice.cols, ErrorCode::other_statistics,
                        "{}: {} has inputs of {} channels there and {} in the model: statistics of "
                        "another model",
                        file, printable(unit.slice.module), s->depth, unit.slice.cols);
    found += quantized;
    if (s->count > 0)
      unit.statistics = s;
    else if (quantized)
      unseen.add(unit);
    if (!quantized || s->count == 0 || method.needs != Needs::gram) continue;
    if (!s->gram) {
      diagonal.add(unit);
      continue;
    }
    unit.row_multiple = std::max<std::int64_t>(unit.row_multiple, kGptqPanel);
    if (plan.statistics->layer_tokens(*s) > 0) few.add(unit);
  }
  require<ValueError>(asked == 0 || found > 0, ErrorCode::other_statistics,
                      "{}: has none of the {} weights to quantize, such as {}: statistics of "
                      "another model",
                      file, asked, missing.first);
  const std::string_view instead =
      method.needs == Needs::nothing ? "" : ", they are quantized as by mse";
  if (missing.count > 0)
    plan.warnings.push_back(fmt::format("{}: {} of {} weights are not in it{}: {}", file,
                                        missing.count, asked, instead, missing.text()));
  if (unseen.count > 0)
    plan.warnings.push_back(fmt::format("{}: {} of {} weights saw no token{}: {}", file,
                                        unseen.count, asked, instead, unseen.text()));
  if (few.count > 0)
    plan.warnings.push_back(
        fmt::format("{}: {} of {} weights are of experts that saw fewer than {} tokens for each "
                    "channel, which those of the whole layer complete: {}",
                    file, few.count, asked, kExpertTokens, few.text()));
  if (diagonal.count > 0)
    plan.warnings.push_back(fmt::format(
        "{}: has no Gram matrix of {} of {} weights, they are quantized as by weighted: {}", file,
        diagonal.count, asked, diagonal.text()));
}

}  // namespace nvfp4::checkpoint
