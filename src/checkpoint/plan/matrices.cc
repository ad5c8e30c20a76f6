#include <algorithm>
#include <set>

#include "checkpoint/plan/steps.h"
#include "core/require.h"
#include "quantizers/gptq.h"

namespace nvfp4::checkpoint {

void MatrixPlanner::add(const EncodedTensor& c, PlannedShard& shard) {
  plan_.tensors.back().first_unit = plan_.units.size();
  plan_.tensors.back().units = c.matrices();
  for (std::size_t i = 0; i < c.matrices(); ++i)
    is_fp8(c.action) ? add_fp8(c, i, shard) : add_nvfp4(c, i, shard);
  plan_.tensors.back().action = plan_.units.back().work().action();
}

void MatrixPlanner::add_fp8(const EncodedTensor& c, std::size_t i, PlannedShard& shard) {
  const LogicalTensor& t = *c.source;
  const WeightSlice slice = c.slice(i);
  const Draft& group = groups_[group_of_[c.place + i]];
  Fp8Module module = fp8_module(c.action, slice.module);
  module.input = options_.input_amax || options_.statistics;
  std::vector<OutputTensor> tensors;
  if (plan_.format->fp8_tensors != nullptr)
    tensors = plan_.format->fp8_tensors(module, slice.rows, slice.cols);
  require<UnsupportedError>(!tensors.empty(), "{}: {}, which {} is not written with",
                            t.data.describe(), action_name(c.action), plan_.format->name);
  require<UnsupportedError>(c.action != Action::mxfp8 || slice.cols % kMxfp8Block == 0,
                            "{}: {} columns, mxfp8 needs a multiple of {}", t.data.describe(),
                            slice.cols, kMxfp8Block);
  const Places places = add_outputs(tensors, shard);
  module.input = places.input_global != kNone;
  // E4M3 alone lacks the range of NVFP4's two scales.
  if (module.input && !group.is_input_known && !t.correction.input) unmeasured_.add(slice.module);
  add_unit(c, i, places, Fp8Work(module.scales, group.input_amax));
  modules_.fp8.push_back(std::move(module));
}

void MatrixPlanner::add_nvfp4(const EncodedTensor& c, std::size_t i, PlannedShard& shard) {
  const WeightSlice slice = c.slice(i);
  const InputStatistics* statistics = statistics_of(plan_.statistics.get(), slice);
  Nvfp4Output output{.has_global = plan_.format->has_global()};
  if (plan_.format->names->arrangement.scales != ScaleLayout::linear) output.row_multiple = 128;
  if (plan_.method->needs == Needs::gram && statistics != nullptr && statistics->gram)
    output.row_multiple = std::max<std::int32_t>(output.row_multiple, kGptqPanel);
  if (c.stays_stacked) {
    output.stack_rows = slice.rows;
    output.stack_begin = static_cast<std::int64_t>(i) * slice.rows * slice.cols;
  }
  const auto in_stack = place_in_stack(slice.module);
  RowStack* const stack = in_stack ? &row_stacks_.at(in_stack->stack) : nullptr;
  if (stack != nullptr) output.first_row = in_stack->expert * slice.rows;
  const Places places = stack != nullptr ? places_in_stack(c, slice, *stack, in_stack->stack, shard)
                        : c.stays_stacked && i > 0 ? plan_.units.back().places
                                                   : add_outputs(outputs_of(c, slice), shard);
  if (!c.stays_stacked || i == 0) {
    modules_.quantized.push_back(c.stays_stacked ? c.source->name : slice.module);
    if (c.scheme == Scheme::w4a16) modules_.weights_only.push_back(modules_.quantized.back());
  }
  const Unit& unit =
      add_unit(c, i, places, nvfp4_work(c, slice, groups_[group_of_[c.place + i]], output));
  if (const auto* copied = unit.as<CopyWork>()) {
    ++copies_;
    if (places.input_global != kNone && !copied->output().input_is_given && !options_.input_amax)
      without_input_.add(unit.slice.module);
  } else if (c.source->is_four_bits() && !output.has_global) {
    rounded_again_.add(unit.slice.module);
  } else if (c.source->encoding() == Encoding::mxfp4 && unit.as<QuantizeWork>()) {
    rounded_.add(unit.slice.module);
  }
}

void MatrixPlanner::note_expert(const WeightSlice& slice) {
  if (plan_.format->expert_place == nullptr) return;
  const auto place = plan_.format->expert_place(slice.module, model_types_);
  if (!place) return;
  RowStack& stack = row_stacks_[place->stack];
  if (stack.experts.empty()) {
    stack.rows = slice.rows;
    stack.cols = slice.cols;
  }
  stack.fits &= stack.experts.insert(place->expert).second && stack.rows == slice.rows &&
                stack.cols == slice.cols;
}

void MatrixPlanner::leave(const std::string& module) {
  if (plan_.format->expert_place == nullptr) return;
  if (const auto place = plan_.format->expert_place(module, model_types_))
    row_stacks_[place->stack].fits = false;
}

/// Returns the place of a matrix whose stack is complete, or null.
std::optional<ExpertPlace> MatrixPlanner::place_in_stack(const std::string& module) const {
  if (plan_.format->expert_place == nullptr) return std::nullopt;
  auto place = plan_.format->expert_place(module, model_types_);
  return place && row_stacks_.at(place->stack).is_whole() ? std::move(place) : std::nullopt;
}

std::string MatrixPlanner::stack_of(const EncodedTensor& c) const {
  const auto place = place_in_stack(c.slice(0).module);
  return place ? place->stack : std::string();
}

/// Returns the tensors of a stack, which its first matrix adds to the shard.
Places MatrixPlanner::places_in_stack(const EncodedTensor& c, const WeightSlice& slice,
                                      RowStack& stack, const std::string& name,
                                      PlannedShard& shard) {
  std::uint64_t& bytes = plan_.tensors.back().bytes_after;
  const std::uint64_t before = bytes;
  if (stack.bytes == 0) {
    std::vector<OutputTensor> tensors =
        plan_.format->tensors(c.scheme, name, slice.rows, slice.cols);
    for (OutputTensor& out : tensors)
      out.spec.shape.insert(out.spec.shape.begin(), std::ssize(stack.experts));
    stack.places = add_outputs(tensors, shard);
    stack.bytes = bytes - before;
  }
  bytes = before + stack.bytes / stack.experts.size();
  return stack.places;
}

std::vector<OutputTensor> MatrixPlanner::outputs_of(const EncodedTensor& c,
                                                    const WeightSlice& slice) const {
  if (c.stays_stacked)
    return plan_.format->stack_tensors(c.scheme, c.source->module(), c.source->matrices(),
                                       slice.rows, slice.cols);
  return plan_.format->tensors(c.scheme, slice.module, slice.rows, slice.cols);
}

/// Adds tensors of the plan's last tensor to the shard.
Places MatrixPlanner::add_outputs(std::span<const OutputTensor> tensors, PlannedShard& shard) {
  Places places;
  for (const OutputTensor& out : tensors) {
    std::size_t& place = out.role == Role::codes           ? places.codes
                         : out.role == Role::scales        ? places.scales
                         : out.role == Role::weight_global ? places.weight_global
                         : out.role == Role::input_global  ? places.input_global
                                                           : places.marker;
    place = shard.specs.size();
    shard.specs.push_back(out.spec);
    plan_.tensors.back().bytes_after += shard.specs.bytes(place);
  }
  return places;
}

const Unit& MatrixPlanner::add_unit(const EncodedTensor& c, std::size_t i, const Places& places,
                                    const Work& work) {
  const std::size_t group = group_of_[c.place + i];
  WeightSlice slice = c.slice(i);
  const InputStatistics* statistics = statistics_of(plan_.statistics.get(), slice);
  plan_.groups[group].units.push_back(plan_.units.size());
  plan_.units.push_back({.tensor = plan_.tensors.size() - 1,
                         .group = group,
                         .slice = std::move(slice),
                         .statistics = statistics,
                         .places = places,
                         .kind = work});
  return plan_.units.back();
}

void MatrixPlanner::warn(const Listed& of, std::string text) {
  if (of.count > 0) plan_.warnings.push_back(std::move(text += ": " + of.text()));
}

void MatrixPlanner::warn() {
  warn_of_missing_statistics(plan_);
  if (options_.drops_inputs)
    plan_.warnings.push_back(
        fmt::format("scheme w4a4 becomes w4a16: {} has no scales of inputs", plan_.format->name));
  warn(rounded_, fmt::format("{} MXFP4 weights are rounded, as weights that loaders fuse with "
                             "them are not MXFP4, and all of them need one global scale",
                             rounded_.count));
  if (rounded_again_.count > 0)
    warn(rounded_again_, fmt::format("{} 4-bit weights are quantized again, as {} has no global "
                                     "scale",
                                     rounded_again_.count, plan_.format->name));
  if (options_.task == TransformOptions::Task::quantize && copies_ > 0 &&
      copies_ == plan_.units.size())
    plan_.warnings.push_back(
        "nothing was left to quantize: every weight chosen is NVFP4 in the input");
  if (options_.task == TransformOptions::Task::quantize)
    warn(without_input_,
         fmt::format("{} of {} weights that are NVFP4 in the input have no input scale and get "
                     "1, --scheme w4a16 leaves activations alone",
                     without_input_.count, copies_));
  warn(unmeasured_,
       fmt::format("the amax of the inputs of {} FP8 weights is not known, their input scale is 1; "
                   "--statistics or --input-amax gives others, fp8_channel needs none",
                   unmeasured_.count));
  warn_of_lost_inputs();
  warn_of_companions();
}

/// Warns of FP8 input scales that the output cannot hold, or that are not finite.
void MatrixPlanner::warn_of_lost_inputs() {
  std::set<const LogicalTensor*> seen;
  Listed lost;
  for (const PlannedTensor& tensor : plan_.tensors) {
    const LogicalTensor& t = *tensor.source;
    if (t.encoding() != Encoding::fp8) continue;
    const bool has_place =
        tensor.units > 0 && plan_.units[tensor.first_unit].places.input_global != kNone;
    const bool taken = tensor.copy != kNone || (has_place && t.fp8_input_amax());
    if (!t.input || taken) continue;
    if (seen.insert(&t).second) lost.add(t.module());
  }
  warn(lost, fmt::format("the input scales of {} FP8 weights are left out", lost.count));
}

/// Warns of tensors beside quantized weights that the output does not have.
void MatrixPlanner::warn_of_companions() {
  std::set<const safetensors::TensorInfo*> seen;  // copied FP8 has several planned tensors
  Listed lost;
  for (const PlannedTensor& tensor : plan_.tensors)
    for (const StoredTensor& companion : tensor.source->left_out)
      if (seen.insert(companion.info).second) lost.add(companion.info->name);
  warn(lost, fmt::format("{} tensors beside quantized weights are left out, no output has them",
                         lost.count));
}

void choose_scheme(Plan& plan, ListedModules& modules, Scheme scheme) {
  plan.scheme = scheme;
  if (modules.weights_only.empty()) return;
  const bool all = modules.weights_only.size() == modules.quantized.size();
  if (all) modules.weights_only.clear();
  plan.scheme = all ? Scheme::w4a16 : Scheme::w4a4;
  plan.weights_only = modules.weights_only.size();
}

WeightSlice whole_weight(const LogicalTensor& t) {
  WeightSlice slice;
  slice.module = t.module();
  slice.cols = t.shape.empty() ? 1 : t.cols();
  slice.rows = slice.cols == 0 ? 0 : t.elements() / slice.cols;
  slice.row_stride = slice.cols;
  slice.amax_count = slice.rows * slice.cols;
  return slice;
}

std::vector<WeightSlice> transposed_matrices(const LogicalTensor& t) {
  std::vector<WeightSlice> slices;
  for (std::int64_t e = 0; e < t.matrices(); ++e) {
    WeightSlice& slice = slices.emplace_back();
    slice.module = t.module();
    slice.rows = t.cols();
    slice.cols = t.rows();
    slice.offset = e * slice.rows * slice.cols;
    slice.row_stride = 1;
    slice.col_stride = t.cols();
  }
  return slices;
}

bool keeps_stacks(const CheckpointFormat& format, const ModelConfig& config,
                  const LogicalTensor& t) {
  const bool fits =
      !t.is_nvfp4() || (t.transposed && t.globals.size() <= 1 && t.inputs.size() <= 1);
  return format.stack_names != nullptr && fits && exported_as_stacks(config);
}

}  // namespace nvfp4::checkpoint
