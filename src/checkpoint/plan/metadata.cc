#include <algorithm>
#include <numeric>

#include "checkpoint/base/option_values.h"
#include "checkpoint/io/json_text.h"
#include "checkpoint/io/reciprocals.h"
#include "checkpoint/io/text_file.h"
#include "checkpoint/plan/plan.h"
#include "checkpoint/source/content.h"
#include "core/require.h"
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

void sort_tensors(Plan& plan, PlannedShard& shard, std::size_t first_unit) {
  const SpecTable& specs = shard.specs;
  std::vector<std::uint32_t> order(specs.size());
  std::iota(order.begin(), order.end(), std::uint32_t{0});
  std::ranges::sort(order, [&](std::uint32_t a, std::uint32_t b) {
    const int bits_a = safetensors::dtype_bits(specs.dtype(a)),
              bits_b = safetensors::dtype_bits(specs.dtype(b));
    return bits_a != bits_b ? bits_a > bits_b : specs.compare_names(a, specs, b) < 0;
  });
  shard.specs.reorder(order);
  std::vector<std::uint32_t> place(order.size());
  for (std::size_t i = 0; i < order.size(); ++i) place[order[i]] = static_cast<std::uint32_t>(i);
  const auto move_to = [&](std::size_t& i) { i = i == kNone ? kNone : place[i]; };
  for (std::size_t t = shard.first_tensor; t < plan.tensors.size(); ++t) {
    move_to(plan.tensors[t].copy);
    move_to(plan.tensors[t].marker);
  }
  for (PlannedCacheScale& scale : shard.cache_scales) move_to(scale.tensor);
  for (std::size_t u = first_unit; u < plan.units.size(); ++u) {
    Places& p = plan.units[u].places;
    for (std::size_t* i : {&p.codes, &p.scales, &p.weight_global, &p.input_global, &p.marker})
      move_to(*i);
  }
}

std::vector<PlannedName> sorted_names(const Plan& plan) {
  std::vector<PlannedName> names;
  std::size_t count = 0;
  for (const PlannedShard& shard : plan.shards) count += shard.specs.size();
  names.reserve(count);
  for (const PlannedShard& shard : plan.shards)
    for (std::size_t i = 0; i < shard.specs.size(); ++i)
      names.push_back({&shard, static_cast<std::uint32_t>(i)});
  std::ranges::sort(names, [](const PlannedName& a, const PlannedName& b) {
    const int order = a.compare(b);
    return order != 0 ? order < 0 : std::pair(a.shard, a.tensor) < std::pair(b.shard, b.tensor);
  });
  return names;
}

void require_unique_names(const Plan& plan) {
  const std::vector<PlannedName> names = sorted_names(plan);
  const auto twice = std::ranges::adjacent_find(
      names, [](const PlannedName& a, const PlannedName& b) { return a.compare(b) == 0; });
  if (twice != names.end())
    throw UnsupportedError(fmt::format("{}: {} is there already, the input seems to be quantized",
                                       std::next(twice)->shard->file, twice->text()),
                           ErrorCode::already_quantized);
}

template <class T>
std::uint32_t SpecTable::number_of(const T& value, std::map<T, std::uint32_t>& numbers,
                                   std::vector<T>& values) {
  const auto [it, fresh] = numbers.try_emplace(value, static_cast<std::uint32_t>(values.size()));
  if (fresh) values.push_back(value);
  return it->second;
}

void SpecTable::push_back(const safetensors::TensorSpec& spec) {
  const std::string_view name = spec.name;
  const std::string_view before = name.substr(0, std::min(name.rfind('.'), name.size()));
  Entry entry;
  entry.dtype = static_cast<std::uint8_t>(spec.dtype);
  entry.suffix = number_of(std::string(name.substr(before.size())), suffix_numbers_, suffixes_);
  entry.shape = number_of(spec.shape, shape_numbers_, shapes_);
  if (!entries_.empty() && stem(entries_.back()) == before) {
    entry.begin = entries_.back().begin;
  } else {
    entry.begin = static_cast<std::uint32_t>(text_.size());
    text_ += before;
  }
  entry.size = static_cast<std::uint32_t>(before.size()) & 0xFFFFFF;
  entries_.push_back(entry);
}

std::string SpecTable::name(std::size_t i) const {
  std::string name(stem(entries_[i]));
  return name += suffixes_[entries_[i].suffix];
}

std::uint64_t SpecTable::bytes(std::size_t i) const {
  auto bits = static_cast<std::uint64_t>(safetensors::dtype_bits(dtype(i)));
  for (const std::int64_t extent : shape(i)) bits *= static_cast<std::uint64_t>(extent);
  return bits / 8;
}

int SpecTable::compare_names(std::size_t i, const SpecTable& other, std::size_t j) const {
  std::string_view a = stem(entries_[i]), a_rest = suffixes_[entries_[i].suffix];
  std::string_view b = other.stem(other.entries_[j]),
                   b_rest = other.suffixes_[other.entries_[j].suffix];
  while (true) {
    const std::size_t common = std::min(a.size(), b.size());
    if (const int order = a.substr(0, common).compare(b.substr(0, common)); order != 0)
      return order;
    a.remove_prefix(common);
    b.remove_prefix(common);
    if (a.empty()) a = std::exchange(a_rest, {});
    if (b.empty()) b = std::exchange(b_rest, {});
    if (a.empty() || b.empty()) return static_cast<int>(!a.empty()) - static_cast<int>(!b.empty());
  }
}

void SpecTable::reorder(std::span<const std::uint32_t> order) {
  std::vector<Entry> sorted;
  sorted.reserve(order.size());
  for (const std::uint32_t i : order) sorted.push_back(entries_[i]);
  entries_ = std::move(sorted);
  text_.shrink_to_fit();
}

}  // namespace nvfp4::checkpoint
