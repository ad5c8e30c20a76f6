#include "checkpoint/families/fused_layers.h"

#include <map>

#include "checkpoint/match/pattern.h"
#include "core/require.h"

namespace nvfp4::checkpoint {
namespace {

bool is_kept_for_its_rows(const Choice& c) {
  if (c.selection->quantize || c.selection->ignored || c.info->shape.size() != 2) return false;
  const std::string obstacle = row_obstacle(c.info->shape[0]);
  return !obstacle.empty() && c.selection->reason == obstacle;
}

}  // namespace

void keep_fused_layers_whole(std::span<const Choice> choices, const FuseRules& rules) {
  std::map<std::string, const Choice*> kept;  // by the key of the fused layer
  const auto layer_of = [&](const Choice& c) { return rules.key(module_of(c.info->name)); };
  for (const Choice& c : choices)
    if (is_kept_for_its_rows(c)) kept.emplace(layer_of(c), &c);
  if (kept.empty()) return;
  for (const Choice& c : choices) {
    if (!c.selection->quantize || c.selection->included) continue;
    const auto it = kept.find(layer_of(c));
    if (it == kept.end()) continue;
    c.selection->quantize = false;
    c.selection->reason =
        fmt::format("loaders fuse it with {}, which has {}", module_of(it->second->info->name),
                    it->second->selection->reason);
  }
}

}  // namespace nvfp4::checkpoint
