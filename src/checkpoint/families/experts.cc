#include "checkpoint/families/experts.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <map>

#include "checkpoint/families/family.h"
#include "checkpoint/match/pattern.h"
#include "core/require.h"

namespace nvfp4::checkpoint {
namespace {

/// Returns the arrangement in the table of families, or `unknown`.
Stacks stacks_of(const ModelConfig& config) {
  for (const Family* family : families_of(config.model_types))
    if (family->stacks != Stacks::unknown) return family->stacks;
  return Stacks::unknown;
}

/// Returns true for a stack [E, K, N], as in x · W, and false for [E, N, K].
bool is_transposed(const safetensors::TensorInfo& t, bool down, const ModelConfig& config) {
  const std::int64_t hidden = config.hidden_size, d1 = t.shape[1], d2 = t.shape[2];
  const std::int64_t n = down ? d1 : d2,
                     k = down ? d2 : d1;  // size that is hidden_size in [E, N, K] or [E, K, N]
  if (hidden > 0 && d1 != d2) {
    // gate and up read the hidden state (K = hidden_size), down writes it (N = hidden_size).
    const bool plain = down ? n == hidden : d2 == hidden;
    const bool transposed = down ? k == hidden : d1 == hidden;
    if (plain != transposed) return transposed;
  }
  if (const Stacks stacks = stacks_of(config); stacks != Stacks::unknown)
    return stacks != Stacks::rows && stacks != Stacks::rows_only;
  throw ValueError(fmt::format(
      "{}: shape [{}, {}, {}] and hidden_size {} do not tell rows from columns; hint: --ignore it",
      t.name, t.shape[0], d1, d2, hidden));
}

constexpr std::string_view kExperts = "experts.";

/// Returns the offset behind "experts.", or npos if the name has no such part.
std::size_t after_experts(std::string_view module) {
  if (module.starts_with(kExperts)) return kExperts.size();
  const std::size_t at = module.find(".experts.");
  return at == std::string_view::npos ? at : at + 1 + kExperts.size();
}

struct Layer {
  std::vector<Choice> weights;
  ExpertCount count;
  const Choice* obstacle = nullptr;  ///< first excluded weight that the user did not exclude
};

}  // namespace

std::optional<StackForm> stack_form(const ModelConfig& config) {
  switch (stacks_of(config)) {
    case Stacks::columns:
      return StackForm{.transposed = true};
    case Stacks::interleaved:
      return StackForm{.transposed = true, .interleaved = true};
    case Stacks::rows_only:
      return StackForm{};
    default:
      return std::nullopt;
  }
}

std::vector<WeightSlice> slice_experts(const safetensors::TensorInfo& tensor,
                                       const ModelConfig& config, std::optional<bool> known,
                                       bool whole) {
  require<ValueError>(std::ranges::find(tensor.shape, 0) == tensor.shape.end(),
                      "{}: shape [{}], must not be empty", tensor.name,
                      fmt::join(tensor.shape, ", "));
  const std::string_view module = module_of(tensor.name);
  const std::size_t dot = module.rfind('.');
  const std::string_view last = module.substr(dot + 1);
  std::string parent(module.substr(0, dot));
  // Step 3.5 stacks "moe.gate_proj", and vLLM (models/step3p5.py) reads "moe.experts.0.gate_proj".
  if (parent.ends_with("moe")) parent += ".experts";
  const bool down = last == "down_proj" || last == "w2";
  const bool fused = last == "gate_up_proj";
  const bool transposed = known ? *known : is_transposed(tensor, down, config);
  const std::int64_t experts = tensor.shape[0];
  const std::int64_t all_rows = tensor.shape[transposed ? 2 : 1];
  const std::int64_t cols = tensor.shape[transposed ? 1 : 2];
  require<ValueError>(!fused || all_rows % 2 == 0,
                      "{}: {} rows of gate and up, must be even; hint: --ignore it", tensor.name,
                      all_rows);
  const std::int64_t parts = fused && !whole ? 2 : 1;
  const bool interleaved = parts == 2 && stacks_of(config) == Stacks::interleaved;
  require<ValueError>(!interleaved || transposed || known, "{}: {} stores [experts, in, out]",
                      tensor.name, fmt::join(config.model_types, ", "));
  const std::int64_t rows = all_rows / parts;

  std::vector<WeightSlice> slices;
  for (std::int64_t e = 0; e < experts; ++e) {
    for (std::int64_t part = 0; part < parts; ++part) {
      WeightSlice s;
      s.module = fmt::format("{}.{}.{}", parent, e,
                             !fused      ? last
                             : part == 0 ? std::string_view("gate_proj")
                                         : std::string_view("up_proj"));
      s.rows = rows;
      s.cols = cols;
      const std::int64_t begin = e * all_rows * cols;
      const std::int64_t row = transposed ? 1 : cols;
      s.row_stride = interleaved ? 2 * row : row;
      s.col_stride = transposed ? all_rows : 1;
      s.offset = begin + part * (interleaved ? row : rows * row);
      s.amax_begin = begin + part * rows * cols;
      s.amax_count = rows * cols;
      slices.push_back(std::move(s));
    }
  }
  return slices;
}

bool exported_as_stacks(const ModelConfig& config) {
  return std::ranges::any_of(families_of(config.model_types), &Family::exported_as_stacks);
}

std::vector<std::string> warnings_of_single_experts(const ModelConfig& config,
                                                    const std::vector<std::string>& quantized) {
  const auto is_expert = [](const std::string& m) { return without_expert_number(m) != m; };
  if (std::ranges::none_of(quantized, is_expert)) return {};
  for (const Family* family : families_of(config.model_types))
    if (family->only_stacks)
      return {fmt::format(
          "{}: experts are written one by one, loaders of this model read stacks of them",
          family->model_types)};
  return {};
}

std::string expert_layer_of(std::string_view module) {
  if (const std::size_t at = after_experts(module); at != std::string_view::npos)
    return std::string(module.substr(0, at - 1));
  const std::string_view parent = module.substr(0, std::min(module.rfind('.'), module.size()));
  return std::string(parent.ends_with(".moe") && module.ends_with("_proj") ? parent : "");
}

std::string without_expert_number(std::string_view module) {
  const std::size_t at = after_experts(module);
  if (at == std::string_view::npos) return std::string(module);
  const std::size_t end = module.find_first_not_of("0123456789", at);
  if (end == at || end == std::string_view::npos || module[end] != '.') return std::string(module);
  return fmt::format("{}*{}", module.substr(0, at), module.substr(end));
}

bool is_expert_weight(const safetensors::TensorInfo& t, const Selection& s) {
  if (s.kind == "stacked experts") return true;
  const std::string_view module = module_of(t.name);
  const std::size_t at = after_experts(module);
  return at < module.size() && module[at] >= '0' && module[at] <= '9' && t.shape.size() == 2 &&
         t.name.ends_with(".weight");
}

std::string ExpertCount::complaint(std::string_view layer) const {
  return fmt::format(
      "{}: {} of {} tensors are quantized, loaders cannot load a partly quantized expert layer",
      layer, quantized, weights);
}

std::vector<std::string> keep_expert_layers_whole(const std::vector<Choice>& choices) {
  std::map<std::string, Layer> layers;
  for (const Choice& choice : choices) {
    if (!is_expert_weight(*choice.info, *choice.selection)) continue;
    Layer& layer = layers[expert_layer_of(module_of(choice.info->name))];
    layer.weights.push_back(choice);
    ++layer.count.weights;
    layer.count.quantized += choice.selection->quantize;
    if (!choice.selection->quantize && !choice.selection->ignored && layer.obstacle == nullptr)
      layer.obstacle = &choice;
  }
  std::vector<std::string> warnings;
  for (auto& [name, layer] : layers) {
    if (!layer.count.is_partly()) continue;
    if (layer.obstacle == nullptr) {
      warnings.push_back(layer.count.complaint(name));
      continue;
    }
    const std::string reason =
        fmt::format("loaders need whole expert layers, and {} of this one: {}",
                    module_of(layer.obstacle->info->name).substr(name.size() + 1),
                    layer.obstacle->selection->reason);
    for (const Choice& choice : layer.weights) {
      if (!choice.selection->quantize) continue;
      choice.selection->quantize = false;
      choice.selection->reason = reason;
    }
  }
  return warnings;
}

}  // namespace nvfp4::checkpoint
