#include "checkpoint/plan.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "checkpoint/expert_layers.h"
#include "checkpoint/fuse.h"
#include "checkpoint/input_amax.h"
#include "checkpoint/json_text.h"
#include "checkpoint/schemes/excludes.h"
#include "checkpoint/text_file.h"
#include "core/require.h"

namespace nvfp4::checkpoint {
namespace {

using safetensors::TensorInfo;

/// The activation amax that nobody measured: input_scale becomes 1.
constexpr float kDefaultInputAmax = 2688.0f;
/// Longer names exist in no model, and std::regex recurses once for each character.
constexpr std::size_t kMaxNameBytes = 1024;

std::vector<WeightSlice> slices_of(const TensorInfo& t, const Selection& s,
                                   const ModelConfig& config) {
  if (s.kind == "stacked experts") return slice_experts(t, config);
  WeightSlice slice;
  slice.module = module_of(t.name);
  slice.rows = t.shape[0];
  slice.cols = t.shape[1];
  slice.row_stride = slice.cols;
  slice.amax_count = slice.rows * slice.cols;
  return {slice};
}

std::uint64_t spec_bytes(const safetensors::TensorSpec& spec) {
  std::uint64_t elements = 1;
  for (const std::int64_t d : spec.shape) elements *= static_cast<std::uint64_t>(d);
  return elements * static_cast<std::uint64_t>(safetensors::dtype_bits(spec.dtype)) / 8;
}

class Planner {
 public:
  Planner(const ModelFolder& model, const QuantizeCheckpointOptions& options)
      : model_(model), options_(options), format_(checkpoint_format(options.format)) {
    if (!model.config_text.empty())
      config_ = parse_model_config(model.config_text, (model.root / "config.json").string());
  }

  Plan run() {
    Selector selector(options_.ignore, options_.include,
                      config_.model_types.empty() ? "" : config_.model_types.front());
    select(selector);
    plan_.warnings = model_.warnings;
    warn(selector.warnings());
    warn(keep_whole_layers());
    for (std::size_t f = 0; f < model_.files.size(); ++f) add_shard(f);
    make_groups();
    finish();
    return std::move(plan_);
  }

 private:
  void warn(const std::vector<std::string>& lines) {
    plan_.warnings.insert(plan_.warnings.end(), lines.begin(), lines.end());
  }

  struct Candidate {
    Selection selection;
    std::vector<WeightSlice> slices;  ///< if quantized
  };

  void select(Selector& selector) {
    for (const safetensors::File& file : model_.files) {
      std::vector<Candidate>& candidates = candidates_.emplace_back();
      for (const TensorInfo& info : file.tensors()) {
        require<FormatError>(info.name.size() <= kMaxNameBytes,
                             "{}: a tensor name of {} bytes, at most {}", file.path().string(),
                             info.name.size(), kMaxNameBytes);
        Candidate& candidate = candidates.emplace_back();
        candidate.selection = selector.select(info);
        if (!candidate.selection.quantize) continue;
        candidate.slices = slices_of(info, candidate.selection, config_);
        const std::int64_t cols = candidate.slices[0].cols;
        if (cols % kBlock == 0) continue;
        candidate.selection.quantize = false;
        candidate.selection.reason = fmt::format("{} columns, not a multiple of {}", cols, kBlock);
      }
    }
  }

  std::vector<std::string> keep_whole_layers() {
    std::vector<Choice> choices;
    for (std::size_t f = 0; f < candidates_.size(); ++f)
      for (std::size_t t = 0; t < candidates_[f].size(); ++t)
        choices.push_back({&model_.files[f].tensors()[t], &candidates_[f][t].selection});
    return keep_expert_layers_whole(choices);
  }

  void add_shard(std::size_t f) {
    PlannedShard shard;
    shard.file = model_.file_names[f];
    shard.metadata = model_.files[f].metadata();
    shard.metadata.try_emplace("format", "pt");  // transformers refuses files that do not say it
    shard.first_tensor = plan_.tensors.size();
    const std::size_t first_unit = plan_.units.size();
    for (std::size_t t = 0; t < candidates_[f].size(); ++t)
      add_tensor(model_.files[f].tensors()[t], std::move(candidates_[f][t]), shard);
    shard.tensors = plan_.tensors.size() - shard.first_tensor;
    sort_by_alignment(shard, first_unit);
    plan_.shards.push_back(std::move(shard));
  }

  void add_tensor(const TensorInfo& info, Candidate candidate, PlannedShard& shard) {
    Selection& selection = candidate.selection;
    PlannedTensor tensor;
    tensor.info = &info;
    tensor.shard = plan_.shards.size();
    if (selection.quantize) {
      tensor.first_unit = plan_.units.size();
      tensor.units = candidate.slices.size();
      for (WeightSlice& slice : candidate.slices)
        tensor.bytes_after += add_unit(std::move(slice), shard);
    } else {
      tensor.copy = shard.specs.size();
      tensor.bytes_after = info.bytes;
      shard.specs.push_back({info.name, info.dtype, info.shape});
      if (info.name.ends_with(".weight") || selection.kind == "stacked experts")
        kept_.push_back({std::string(module_of(info.name)), selection.linear});
    }
    tensor.selection = std::move(selection);
    plan_.tensors.push_back(std::move(tensor));
  }

  std::uint64_t add_unit(WeightSlice slice, PlannedShard& shard) {
    Unit unit;
    unit.tensor = plan_.tensors.size();
    std::uint64_t bytes = 0;
    for (OutputTensor& out :
         format_.tensors(options_.scheme, slice.module, slice.rows, slice.cols)) {
      std::size_t& place = out.role == Role::codes           ? unit.codes
                           : out.role == Role::scales        ? unit.scales
                           : out.role == Role::weight_global ? unit.weight_global
                                                             : unit.input_global;
      place = shard.specs.size();
      bytes += spec_bytes(out.spec);
      shard.specs.push_back(std::move(out.spec));
    }
    quantized_.push_back(slice.module);
    unit.slice = std::move(slice);
    plan_.units.push_back(std::move(unit));
    return bytes;
  }

  /// Wide elements first: with no gaps between tensors, each then starts at a multiple of its
  /// element size, which PyTorch's loader needs.
  void sort_by_alignment(PlannedShard& shard, std::size_t first_unit) {
    std::vector<std::size_t> order(shard.specs.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
      return safetensors::dtype_bits(shard.specs[a].dtype) >
             safetensors::dtype_bits(shard.specs[b].dtype);
    });
    std::vector<std::size_t> place(order.size());
    std::vector<safetensors::TensorSpec> sorted;
    for (std::size_t i = 0; i < order.size(); ++i) {
      place[order[i]] = i;
      sorted.push_back(std::move(shard.specs[order[i]]));
    }
    shard.specs = std::move(sorted);
    const auto move_to = [&](std::size_t& i) { i = i == kNone ? kNone : place[i]; };
    for (std::size_t t = shard.first_tensor; t < plan_.tensors.size(); ++t)
      move_to(plan_.tensors[t].copy);
    for (std::size_t u = first_unit; u < plan_.units.size(); ++u) {
      Unit& unit = plan_.units[u];
      for (std::size_t* i : {&unit.codes, &unit.scales, &unit.weight_global, &unit.input_global})
        move_to(*i);
    }
  }

  void make_groups() {
    FuseRules rules(options_.fuse);
    InputAmax amaxes;
    if (options_.input_amax) {
      const std::string text = read_text_file(*options_.input_amax);
      plan_.input_amax_fingerprint = fingerprint(text);
      amaxes = InputAmax(text, options_.input_amax->string());
      if (options_.scheme == Scheme::nvfp4a16)
        plan_.warnings.push_back("--input-amax: no effect, scheme nvfp4a16 has no input scales");
    }
    std::map<std::string, std::size_t> group_of;
    for (std::size_t u = 0; u < plan_.units.size(); ++u) {
      Unit& unit = plan_.units[u];
      const auto [it, fresh] =
          group_of.try_emplace(rules.key(unit.slice.module), plan_.groups.size());
      if (fresh) plan_.groups.emplace_back();
      unit.group = it->second;
      rules.see(unit.slice.module);
      Group& group = plan_.groups[unit.group];
      group.units.push_back(u);
      group.input_amax = std::max(group.input_amax, amaxes.find(unit.slice.module));
    }
    if (options_.input_amax && options_.scheme == Scheme::nvfp4) fill_experts(rules);
    for (Group& group : plan_.groups)
      if (group.input_amax == 0) group.input_amax = kDefaultInputAmax;
    warn(amaxes.warnings());
    warn(rules.warnings());
    for (const KeptModule& kept : kept_) {
      const std::string key = rules.key(kept.name);
      if (!expert_layer_of(kept.name).empty()) continue;  // has its own warning
      if (const auto it = group_of.find(key); it != group_of.end() && kept.linear)
        plan_.warnings.push_back(
            fmt::format("{} is kept but {} is quantized: loaders that fuse them refuse that",
                        kept.name, plan_.units[plan_.groups[it->second].units[0]].slice.module));
    }
  }

  /// Calibration data need not reach every expert: one without an amax takes the largest of the
  /// same projections of its layer's other experts. What still has none is warned about.
  void fill_experts(const FuseRules& rules) {
    std::map<std::string, float> largest;
    const auto kind_of = [&](const Group& group) {
      return without_expert_number(rules.key(plan_.units[group.units[0]].slice.module));
    };
    for (const Group& group : plan_.groups) {
      float& amax = largest[kind_of(group)];
      amax = std::max(amax, group.input_amax);
    }
    std::size_t missing = 0, first = kNone;
    for (Group& group : plan_.groups) {
      if (group.input_amax == 0) group.input_amax = largest[kind_of(group)];
      if (group.input_amax != 0) continue;
      missing += group.units.size();
      first = std::min(first, group.units[0]);
    }
    if (missing > 0)
      plan_.warnings.push_back(
          fmt::format("{} of {} modules have no entry in {}, {} is used: {}{}", missing,
                      plan_.units.size(), options_.input_amax->string(), kDefaultInputAmax,
                      plan_.units[first].slice.module, missing > 1 ? ", ..." : ""));
  }

  void finish() {
    std::set<std::string_view> names;
    for (const PlannedShard& shard : plan_.shards) {
      for (const safetensors::TensorSpec& spec : shard.specs) {
        require<UnsupportedError>(names.insert(spec.name).second,
                                  "{}: {} is there already, the input seems to be quantized",
                                  shard.file, spec.name);
        plan_.index.weight_map[spec.name] = shard.file;
        plan_.index.total_size += spec_bytes(spec);
      }
    }
    const ConfigFacts facts = {options_.scheme, kept_, quantized_};
    const Json quantization = format_.quantization_config(facts);
    plan_.config_json = with_quantization_config(config_, quantization);
    if (format_.hf_quant_config)
      plan_.hf_quant_json = dump_pretty(format_.hf_quant_config(facts), 4) + "\n";
    if (config_.text.empty())
      plan_.warnings.push_back("the input has no config.json, the output gets a bare one");
    if (quantized_.empty()) plan_.warnings.push_back("no tensor is quantized");
    std::vector<std::string> linear;
    for (const auto& entry : linear_excludes(facts, [](const std::string& e) { return e + "*"; }))
      if (expert_layer_of(entry).empty()) linear.push_back(entry);
    warn(exclude_conflicts(linear, quantized_));
  }

  const ModelFolder& model_;
  const QuantizeCheckpointOptions& options_;
  const CheckpointFormat& format_;
  ModelConfig config_;
  std::vector<std::vector<Candidate>> candidates_;  ///< of each file
  Plan plan_;
  std::vector<KeptModule> kept_;
  std::vector<std::string> quantized_;
};

}  // namespace

Plan make_plan(const ModelFolder& model, const QuantizeCheckpointOptions& options) {
  return Planner(model, options).run();
}

}  // namespace nvfp4::checkpoint
