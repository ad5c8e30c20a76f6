// The groups of matrices that share scales.
#include <algorithm>
#include <cfloat>

#include "checkpoint/families/experts.h"
#include "checkpoint/io/text_file.h"
#include "checkpoint/plan/steps.h"
#include "core/require.h"

namespace nvfp4::checkpoint {
namespace {

/// The activation amax if none is known. It makes input_scale 1.
constexpr float kDefaultInputAmax = 2688.0f;
/// The activation amax of an FP8 weight if none is known. It makes input_scale 1.
constexpr float kDefaultFp8Amax = E4M3::kMax;
/// The end of the keys of matrices in FP8, which share no scale with those in NVFP4.
constexpr const char* kFp8Key = "#fp8";

void take_larger(std::optional<GlobalScale>& largest, const std::optional<GlobalScale>& scale) {
  if (scale && (!largest || scale->multiplier > largest->multiplier)) largest = scale;
}

}  // namespace

MatrixPlanner::MatrixPlanner(Plan& plan, const TransformOptions& options, ListedModules& modules,
                             std::span<const std::string> model_types, const Declared* declared)
    : plan_(plan),
      options_(options),
      modules_(modules),
      declared_(declared),
      rules_(options.fuse, model_types),
      model_types_(model_types) {
  if (!options.input_amax) return;
  const std::string text = read_model_text(*options.input_amax);
  plan_.input_amax_fingerprint = fingerprint(text);
  amax_file_ = options.input_amax->string();
  amaxes_ = InputAmax(text, amax_file_, options.match_budget);
}

void MatrixPlanner::group(EncodedTensor& c) {
  require<ValueError>(!is_fp8(c.action) || !c.source->is_four_bits(),
                      "{}: {}, which {} would make larger and no better", c.source->data.describe(),
                      c.source->form_name(), action_name(c.action));
  c.place = group_of_.size();
  for (std::size_t i = 0; i < c.matrices(); ++i) group_of_.push_back(group(c, i));
}

std::uint32_t MatrixPlanner::group(const EncodedTensor& c, std::size_t i) {
  const LogicalTensor& t = *c.source;
  const WeightSlice slice = c.slice(i);
  const bool fp8 = is_fp8(c.action);
  const auto [it, fresh] = by_key_.try_emplace(
      c.stays_stacked ? t.name : rules_.key(slice.module) + (fp8 ? kFp8Key : ""), groups_.size());
  if (fresh) groups_.push_back({.tensor = &c, .matrix = static_cast<std::uint32_t>(i), .fp8 = fp8});
  rules_.see(slice.module);
  fp8 ? leave(slice.module) : note_expert(slice);
  Draft& group = groups_[it->second];
  ++group.members;
  group.mxfp4 += t.encoding() == Encoding::mxfp4;
  if (t.is_nvfp4()) {
    ++group.copies;
    const GlobalScale global = CopyWork::global_of(t, slice);
    group.differs |= group.copied && group.copied->multiplier != global.multiplier;
    take_larger(group.copied, global);
  }
  if (const auto own = own_input(c, slice))
    take_larger(group.input, own);
  else
    group.input_amax = std::max(group.input_amax, input_amax(c, slice));
  return static_cast<std::uint32_t>(it->second);
}

/// Returns the input scale that the matrix has in the input, or gets by a repair.
std::optional<GlobalScale> MatrixPlanner::own_input(const EncodedTensor& c,
                                                    const WeightSlice& slice) const {
  const LogicalTensor& t = *c.source;
  if (t.correction.input) return t.correction.input;
  if (!t.is_nvfp4() || c.scheme == Scheme::w4a16) return {};
  // Without one, a weight gets an input scale like every quantized weight.
  if (options_.task == TransformOptions::Task::quantize && t.inputs.empty()) return {};
  return copied_input(t, slice, declared_);
}

/// Returns the activation amax of a matrix, or 0 if none is known. The user's file has priority
/// over statistics.
float MatrixPlanner::input_amax(const EncodedTensor& c, const WeightSlice& slice) {
  const std::string& module = slice.module;
  const InputStatistics* statistics = statistics_of(plan_.statistics.get(), slice);
  float given = amaxes_.find(module);
  if (constexpr std::string_view kGate = "gate_proj"; c.stays_stacked && module.ends_with(kGate))
    given =
        std::max(given, amaxes_.find(module.substr(0, module.size() - kGate.size()) + "up_proj"));
  if (given != 0) return given;
  const auto usable = [](float amax) { return amax / kDefaultInputAmax >= FLT_MIN ? amax : 0; };
  if (statistics == nullptr) return usable(c.source->fp8_input_amax().value_or(0));
  const float seen = usable(statistics->amax);
  if (seen != 0 && amax_file_.empty()) amax_file_ = options_.statistics->string();
  return seen;
}

void MatrixPlanner::decide() {
  if (options_.scheme == Scheme::w4a16 && options_.input_amax)
    plan_.warnings.emplace_back("--input-amax: no effect, scheme w4a16 has no input scales");
  share_inputs();
  plan_.units.reserve(group_of_.size());
  plan_.groups.reserve(groups_.size());
  Listed unequal, missing;
  for (Draft& group : groups_) {
    plan_.groups.push_back({.units = {}, .copied = group.encodes() ? group.copied : std::nullopt});
    if (!group.encodes() && group.differs) unequal.add(group.module());
    const bool takes_input = group.fp8 || group.tensor->scheme == Scheme::w4a4;
    if (!amax_file_.empty() && takes_input) {  // Calibration data may not reach every expert.
      if (group.input_amax == 0) group.input_amax = group.kind->input_amax;
      if (group.input_amax == 0 && !group.input && !group.shared)
        missing.add(group.module(), group.members);
    }
    group.is_input_known = group.input_amax != 0;
    if (!group.is_input_known) group.input_amax = group.fp8 ? kDefaultFp8Amax : kDefaultInputAmax;
  }
  if (options_.task == TransformOptions::Task::quantize)
    warn(unequal, fmt::format("{} weights that loaders fuse have global scales that differ in the "
                              "input, nvfp4 repair makes them equal",
                              unequal.count));
  warn(missing, fmt::format("{} of {} modules have no entry in {}, {} is used", missing.count,
                            group_of_.size(), amax_file_, kDefaultInputAmax));
  for (const auto& lines : {amaxes_.warnings(), rules_.warnings()})
    plan_.warnings.insert(plan_.warnings.end(), lines.begin(), lines.end());
  warn_of_partly_kept();
  by_key_.clear();
}

/// Gives all members of a group with copied weights one input scale. New experts get the largest
/// one of the same projection in other experts.
void MatrixPlanner::share_inputs() {
  for (Draft& group : groups_) {
    if (group.copies > 0 && group.encodes() && group.input && group.input_amax != 0)
      take_larger(group.input, GlobalScale::from_amax(group.input_amax, Quantizer::max));
    if (group.copies > 0) group.shared = group.input;
    group.kind = &kinds_[without_expert_number(rules_.key(group.module()))];
    take_larger(group.kind->input, group.input);
    group.kind->input_amax = std::max(group.kind->input_amax, group.input_amax);
  }
  for (Draft& group : groups_)
    if (!group.shared && group.input_amax == 0 && !group.fp8) group.shared = group.kind->input;
}

void MatrixPlanner::warn_of_partly_kept() {
  // The texts, by the last component of the name.
  std::map<std::string_view, std::pair<std::string, std::size_t>> texts;
  const auto add = [&](const std::string& module, const char* form, const char* other,
                       const std::string& key) {
    const auto it = by_key_.find(key);
    if (it == by_key_.end()) return false;
    auto& [text, count] = texts[split_name(module).back()];
    if (++count == 1)
      text = fmt::format("{} is {} but {} is {}: loaders that fuse them refuse that", module, form,
                         groups_[it->second].module(), other);
    return true;
  };
  for (const KeptModule& kept : modules_.kept) {
    // An expert layer has a warning of its own.
    if (!kept.linear || !expert_layer_of(kept.name).empty() || is_decay_projection(kept.name))
      continue;
    const std::string key = rules_.key(kept.name);
    if (!add(kept.name, "kept", "quantized", key))
      add(kept.name, "kept", "quantized", key + kFp8Key);
  }
  for (const std::string& module : modules_.copied_fp8)
    add(module, "FP8", "NVFP4", rules_.key(module));
  for (const auto& [name, found] : texts) {
    const auto& [text, count] = found;
    plan_.warnings.push_back(
        count == 1 ? text : fmt::format("{}; {} more modules named {}", text, count - 1, name));
  }
}

/// Returns the work for a format without global scales. Throws UnsupportedError for a conversion
/// that rounds, unless it is allowed.
Work MatrixPlanner::work_without_global(const LogicalTensor& t, const WeightSlice& slice,
                                        const Nvfp4Output& output) const {
  if (t.is_nvfp4() && CopyWork::is_exact_without_global(t, slice))
    return CopyWork(output, t, slice, true);
  const bool rounds_again = t.is_four_bits() && !t.correction.requantize;
  require<UnsupportedError>(
      !rounds_again || options_.allow.round,
      "{}: {} whose scales {} cannot hold without a global scale; hint: nvfp4 convert --allow "
      "round quantizes such weights again, nvfp4 quantize of the original model is better",
      t.data.describe(), t.form_name(), plan_.format->name);
  return QuantizeWork(output);
}

Work MatrixPlanner::nvfp4_work(const EncodedTensor& c, const WeightSlice& slice, const Draft& group,
                               Nvfp4Output output) const {
  const LogicalTensor& t = *c.source;
  std::optional<GlobalScale> input = own_input(c, slice);
  if (!input || (group.copies > 0 && group.encodes() && group.shared)) input = group.shared;
  output.input_is_given = input.has_value();
  output.input = input ? *input : GlobalScale::from_amax(group.input_amax, Quantizer::max);
  if (!output.has_global) return work_without_global(t, slice, output);
  if (t.is_nvfp4()) return CopyWork(output, t, slice, group.encodes());
  // MXFP4 keeps its values only if the whole group is MXFP4: another global scale does not fit its
  // exponents.
  if (t.encoding() == Encoding::mxfp4 && group.mxfp4 == group.members) return TranscodeWork(output);
  return QuantizeWork(output);
}

}  // namespace nvfp4::checkpoint
