#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>

#include "checkpoint/families/model_config.h"
#include "checkpoint/load/layer_weights.h"
#include "core/printable.h"
#include "core/require.h"

namespace nvfp4 {
namespace {

using checkpoint::LayerWeights;
using checkpoint::LogicalTensor;

/// The names of an expert's matrices.
struct Names {
  const char *gate, *up, *down;
};
constexpr std::array<Names, 2> kNames = {
    {{"gate_proj", "up_proj", "down_proj"}, {"w1", "w3", "w2"}}};

/// Returns the number of experts "<prefix>0.…", "<prefix>1.…", ...: the largest number plus one.
std::int64_t count_experts(const LayerWeights& weights, const std::string& prefix) {
  const auto& tensors = weights.reader().tensors();
  std::int64_t count = 0;
  for (const LogicalTensor& t : tensors) {
    if (!t.name.starts_with(prefix)) continue;
    std::int64_t number = 0;
    const char* end = t.name.data() + t.name.size();
    const auto [rest, error] = std::from_chars(t.name.data() + prefix.size(), end, number);
    if (error != std::errc() || rest == end || *rest != '.' || number < 0) continue;
    // Every expert has a tensor, so with a higher number some experts are missing.
    require<FormatError>(number < static_cast<std::int64_t>(tensors.size()),
                         "{}: tensor '{}', but there are only {} tensors", weights.path(),
                         printable(t.name), tensors.size());
    count = std::max(count, number + 1);
  }
  return count;
}

bool has_expert(const LayerWeights& weights, const std::string& module, const Names& names) {
  return weights.find(fmt::format("{}.{}", module, names.gate)) != nullptr ||
         weights.find(fmt::format("{}.{}", module, names.up)) != nullptr ||
         weights.find(fmt::format("{}.{}", module, names.down)) != nullptr;
}

ExpertWeights load_expert(LayerWeights& weights, const std::string& module, const Names& names) {
  const auto matrix = [&](const char* name) {
    return weights.matrix(fmt::format("{}.{}", module, name));
  };
  return {matrix(names.gate), matrix(names.up), matrix(names.down)};
}

std::vector<ExpertWeights> load_single(LayerWeights& weights, const std::string& experts) {
  std::vector<ExpertWeights> list;
  const std::int64_t count = count_experts(weights, experts + ".");
  for (const Names& names : kNames) {
    bool any = false;
    for (std::int64_t e = 0; e < count && !any; ++e)
      any = has_expert(weights, fmt::format("{}.{}", experts, e), names);
    for (std::int64_t e = 0; any && e < count; ++e)
      list.push_back(load_expert(weights, fmt::format("{}.{}", experts, e), names));
    if (any) break;
  }
  return list;
}

/// Returns the matrices of the stack "<experts>.<name>". gate_up_proj gives a gate and an up for
/// each expert.
std::vector<WeightView> load_stack(LayerWeights& weights, const std::string& experts,
                                   const char* name) {
  const bool fused = std::string_view(name) == "gate_up_proj";
  const LogicalTensor& t = weights.get(fmt::format("{}.{}", experts, name), 3);
  std::vector<WeightView> list;
  require<FormatError>(t.is_nvfp4() || t.is_plain(), "{}: {}, stacks must be NVFP4 or plain",
                       checkpoint::describe(t), t.form_name());
  checkpoint::ModelConfig config;
  if (const std::string text = weights.reader().config_text(); !text.empty() || t.is_plain())
    config = checkpoint::parse_model_config(text, weights.reader().config_file());
  if (t.is_plain()) {
    for (const checkpoint::WeightSlice& s :
         checkpoint::slices_of(t, weights.reader().tensors(), config))
      list.push_back(weights.slice(t, s.offset, s.rows, s.cols, s.row_stride, s.col_stride));
    return list;
  }
  require<FormatError>(!fused || t.outputs() % 2 == 0, "{}: shape [{}], must have rows in pairs",
                       checkpoint::describe(t), fmt::join(t.shape, ", "));
  const auto form = checkpoint::stack_form(config);
  for (const WeightView& w : weights.stack(t, fused && form && form->interleaved ? 2 : 1))
    for (const WeightView& half : split_groups(w, fused ? 2 : 1)) list.push_back(half);
  return list;
}

std::vector<ExpertWeights> load_stacked(LayerWeights& weights, const std::string& experts) {
  const bool fused = weights.find(experts + ".gate_up_proj") != nullptr;
  if (!fused && weights.find(experts + ".gate_proj") == nullptr) return {};
  const std::vector<WeightView> down = load_stack(weights, experts, "down_proj");
  std::vector<WeightView> gates, ups;
  if (fused) {
    gates = load_stack(weights, experts, "gate_up_proj");
  } else {
    gates = load_stack(weights, experts, "gate_proj");
    ups = load_stack(weights, experts, "up_proj");
  }
  require<FormatError>(
      gates.size() == down.size() * (fused ? 2 : 1) && (fused || ups.size() == down.size()),
      "{}: the stacks below '{}' have different numbers of experts", weights.path(),
      printable(experts));
  std::vector<ExpertWeights> list;
  for (std::size_t e = 0; e < down.size(); ++e)
    list.push_back({fused ? gates[2 * e] : gates[e], fused ? gates[2 * e + 1] : ups[e], down[e]});
  return list;
}

/// Throws UnsupportedError if the experts have parts that Moe does not compute: nothing is ignored
/// silently.
void require_plain_experts(const LayerWeights& weights, const std::string& module) {
  const std::string routed = module + ".experts.", shared = module + ".shared_expert";
  for (const LogicalTensor& t : weights.reader().tensors()) {
    const bool of_experts = t.name.starts_with(routed) || t.name.starts_with(shared);
    require<UnsupportedError>(!of_experts || !t.name.ends_with("bias"),
                              "{}: tensor '{}' is a bias, which Moe does not add", weights.path(),
                              printable(t.name));
    require<UnsupportedError>(
        !t.name.starts_with(shared + "_gate."),
        "{}: tensor '{}' is a weight of the shared expert, which Moe does not apply",
        weights.path(), printable(t.name));
  }
}

}  // namespace

Moe load_moe(const Checkpoint& checkpoint, std::string_view module, const MoeOptions& options,
             Unquantized unquantized) {
  LayerWeights weights(checkpoint, unquantized);
  const std::string name(module), experts = name + ".experts";
  require_plain_experts(weights, name);
  std::vector<ExpertWeights> routed = load_single(weights, experts), shared;
  if (routed.empty()) routed = load_stacked(weights, experts);
  require<FormatError>(!routed.empty(), "{}: there are no experts below '{}'", weights.path(),
                       printable(experts));
  for (const char* part : {".shared_experts", ".shared_expert"})
    for (const Names& names : kNames)
      if (has_expert(weights, name + part, names))
        shared.push_back(load_expert(weights, name + part, names));
  for (const auto* list : {&routed, &shared})
    for (const ExpertWeights& e : *list) {
      const std::int64_t k = routed[0].gate.inputs(), i = (*list)[0].gate.outputs();
      weights.require_shape(e.gate, i, k);
      weights.require_shape(e.up, i, k);
      weights.require_shape(e.down, k, i);
    }
  return Moe(routed, shared, options);
}

}  // namespace nvfp4
