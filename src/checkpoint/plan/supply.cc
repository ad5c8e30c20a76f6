#include "checkpoint/plan/steps.h"
#include "core/require.h"

namespace nvfp4::checkpoint {

std::shared_ptr<const Statistics> statistics_of_run(const TransformOptions& options,
                                                    const ModelConfig& config) {
  const Method& method = *options.chosen.method;
  require<ValueError>(method.needs == Needs::nothing || options.statistics,
                      ErrorCode::no_statistics, "method = {}: needs {}, in a file for --statistics",
                      method.name, needs_text(method.needs));
  if (!options.statistics) return nullptr;
  auto statistics = open_statistics(*options.statistics, config);
  require<ValueError>(method.needs != Needs::gram || statistics->has_grams(),
                      ErrorCode::no_statistics,
                      "method = {}: {} does not hold {}; hint: nvfp4 calibrate --keep-gram "
                      "writes it",
                      method.name, options.statistics->string(), needs_text(method.needs));
  return statistics;
}

const InputStatistics* statistics_of(const Statistics* statistics, const WeightSlice& slice) {
  const InputStatistics* s = statistics == nullptr ? nullptr : statistics->find(slice.module);
  if (s == nullptr) return nullptr;
  require<ValueError>(s->depth == slice.cols, ErrorCode::other_statistics,
                      "{}: {} has inputs of {} channels there and {} in the model: statistics of "
                      "another model",
                      statistics->path().string(), printable(slice.module), s->depth, slice.cols);
  return s->count > 0 ? s : nullptr;
}

void warn_of_missing_statistics(Plan& plan) {
  if (plan.statistics == nullptr) return;
  const std::string file = plan.statistics->path().string();
  std::size_t asked = 0;
  Listed missing, unseen, diagonal, few;
  for (const Unit& unit : plan.units) {
    if (!unit.as<QuantizeWork>()) continue;
    ++asked;
    const std::string& module = unit.slice.module;
    if (plan.statistics->find(module) == nullptr)
      missing.add(module);
    else if (unit.statistics == nullptr)
      unseen.add(module);
    else if (plan.method->needs == Needs::gram && !unit.statistics->gram)
      diagonal.add(module);
    else if (plan.method->needs == Needs::gram &&
             plan.statistics->layer_tokens(*unit.statistics) > 0)
      few.add(module);
  }
  require<ValueError>(asked == 0 || missing.count < asked, ErrorCode::other_statistics,
                      "{}: has none of the {} weights to quantize, such as {}: statistics of "
                      "another model",
                      file, asked, missing.first);
  const auto warn = [&](const Listed& of, const std::string& what) {
    if (of.count > 0)
      plan.warnings.push_back(fmt::format(
          "{}: {}: {}", file,
          fmt::format(fmt::runtime(what), fmt::format("{} of {}", of.count, asked)), of.text()));
  };
  const std::string instead =
      plan.method->needs == Needs::nothing ? "" : ", they are quantized as by mse";
  warn(missing, "{} weights are not in it" + instead);
  warn(unseen, "{} weights got no token" + instead);
  warn(few, fmt::format("{{}} weights are of experts that got fewer than {} tokens for each "
                        "channel, which those of the whole layer complete",
                        kExpertTokens));
  warn(diagonal, "has no Gram matrix of {} weights, they are quantized as by weighted");
}

}  // namespace nvfp4::checkpoint
