#include "checkpoint/plan/metadata.h"

#include <algorithm>

#include "checkpoint/base/option_values.h"
#include "checkpoint/io/json_text.h"
#include "checkpoint/io/reciprocals.h"
#include "checkpoint/io/text_file.h"
#include "checkpoint/source/content.h"
#include "nvfp4/runtime.h"

namespace nvfp4::checkpoint {
namespace {

using Task = TransformOptions::Task;

Json producer_of(const Plan& plan, const ModelFolder& model, const TransformOptions& options) {
  Json json = {{"version", version()}, {"scale_search", options.chosen.method->name}};
  if (options.chosen.method->needs == Needs::gram) json["sweeps"] = options.chosen.sweeps;
  Json known = known_options(plan, model, options);
  known["method"] = nullptr;
  options::record(json, kQuantizeOptions, options, Effect::values, known);
  json["input"] = hex(content_of(model));
  return json;
}

}  // namespace

Json known_options(const Plan& plan, const ModelFolder& model, const TransformOptions& options) {
  Json known = {{"method", options.chosen.text()},
                {"recipe", nullptr},
                {"merge", nullptr},
                {"input_amax", nullptr},  // recorded if it was read
                {"statistics", nullptr}};
  if (options.layers != nullptr)
    known["recipe"] = options.layers->name.empty() ? options.layers->text : options.layers->name;
  if (!model.merged.empty()) known["merge"] = model.merged;
  if (plan.input_amax_fingerprint) known["input_amax"] = hex(*plan.input_amax_fingerprint);
  if (plan.statistics_fingerprint) known["statistics"] = hex(*plan.statistics_fingerprint);
  using File = std::optional<std::filesystem::path> QuantizeCheckpointOptions::*;
  for (const auto& row : kQuantizeOptions) {
    const File* const file = std::get_if<File>(&row.member);
    const std::string keyword = options::keyword_of(row.names);
    if (file != nullptr && options.**file && !known.contains(keyword))
      known[keyword] = hex(fingerprint(read_model_text(*(options.**file))));
  }
  return known;
}

safetensors::Metadata metadata_of_output(safetensors::Metadata of_input) {
  of_input.erase(kReciprocalsKey);
  std::erase_if(of_input, [](const auto& entry) {
    return std::ranges::any_of(all_formats(), [&](const CheckpointFormat* f) {
      return f->own_metadata != nullptr && f->own_metadata(entry.first, entry.second);
    });
  });
  of_input.try_emplace("format", "pt");  // transformers refuses files without this entry.
  return of_input;
}

void name_producer(Plan& plan, ModelConfig& config, const ModelFolder& model,
                   const TransformOptions& options) {
  if (options.task == Task::decode) {
    for (PlannedShard& shard : plan.shards) shard.metadata.erase(kProducerKey);
    if (!config.text.empty()) config.text = without_member(config.text, kProducerKey);
    return;
  }
  const bool encodes = std::ranges::any_of(plan.units, [](const Unit& unit) {
    return !unit.as<CopyWork>() && !unit.as<DequantizeWork>() && !unit.as<Q8Work>() &&
           !unit.as<Mxfp4Work>();
  });
  if (!encodes) return;
  const Json producer = producer_of(plan, model, options);
  for (PlannedShard& shard : plan.shards) shard.metadata[kProducerKey] = dump_line(producer);
  if (!config.text.empty()) config.text = with_member(config.text, kProducerKey, producer);
}

void keep_reciprocals(Plan& plan) {
  if (plan.format == nullptr) return;
  const bool divisors = plan.format->names->divisors;
  for (PlannedShard& shard : plan.shards) {
    Reciprocals reciprocals;
    const auto add = [&](std::size_t tensor, const GlobalScale& scale) {
      if (tensor != kNone) reciprocals.add(shard.specs.name(tensor), scale, divisors);
    };
    for (std::size_t t = shard.first_tensor; t < shard.first_tensor + shard.tensors; ++t) {
      for (std::size_t u = 0; u < plan.tensors[t].units; ++u) {
        const Unit& unit = plan.units[plan.tensors[t].first_unit + u];
        const auto* work = unit.as<Nvfp4Work>();
        if (work && work->output().input_is_given)
          add(unit.places.input_global, work->output().input);
        if (const auto* copied = unit.as<CopyWork>(); copied && copied->own_global())
          add(unit.places.weight_global, *copied->own_global());
      }
    }
    if (!reciprocals.empty()) shard.metadata[kReciprocalsKey] = reciprocals.text();
  }
}

}  // namespace nvfp4::checkpoint
