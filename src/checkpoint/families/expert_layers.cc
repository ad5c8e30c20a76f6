#include "checkpoint/families/expert_layers.h"

#include <map>

#include "checkpoint/match/pattern.h"
#include "core/require.h"

namespace nvfp4::checkpoint {
namespace {

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
