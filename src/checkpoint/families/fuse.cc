#include "checkpoint/families/fuse.h"

#include "checkpoint/families/family.h"
#include "checkpoint/match/pattern.h"
#include "core/require.h"

namespace nvfp4::checkpoint {
namespace {

/// Returns the name that stands for a component: in_proj_qkv, in_proj_z, in_proj_b … of a linear
/// attention layer are one set.
std::string_view canonical(std::string_view component) {
  return component.starts_with("in_proj_") ? "in_proj_*" : component;
}

std::string_view last_component(std::string_view module) {
  const std::size_t dot = module.rfind('.');
  return dot == std::string_view::npos ? module : module.substr(dot + 1);
}

const std::vector<std::vector<std::string>>& default_sets() {
  static const std::vector<std::vector<std::string>> sets = {
      {"q_proj", "k_proj", "v_proj"},
      {"gate_proj", "up_proj", "linear_gate"},
      {"w1", "w3"},
      {"q_a_proj", "kv_a_proj_with_mqa", "kv_a_proj"},
      {"to_q", "to_k", "to_v"},
      {"add_q_proj", "add_k_proj", "add_v_proj"},
      {"wq", "wk", "wv"},
      {"wq_a", "wkv_a", "wkv_a_with_mqa", "wkv"},
      {"query", "key", "value"},
      {"q", "k", "v"},
      {"wi_0", "wi_1"},
      {"c_fc_0", "c_fc_1"},
      {"linear", "linear_v"},
      {"in_proj_*"},
  };
  return sets;
}

bool is_kept_for_its_rows(const Choice& c) {
  if (c.selection->quantize || c.selection->ignored || c.info->shape.size() != 2) return false;
  const std::string obstacle = row_obstacle(c.info->shape[0]);
  return !obstacle.empty() && c.selection->reason == obstacle;
}

}  // namespace

void FuseRules::add(const std::vector<std::string>& names) {
  const int set = next_++;
  for (const std::string& name : names) {
    const auto [it, fresh] = set_of_.try_emplace(std::string(canonical(name)), set);
    if (fresh) continue;
    const int old = it->second;
    for (auto& entry : set_of_)
      if (entry.second == old) entry.second = set;
  }
}

FuseRules::FuseRules(const std::vector<std::string>& extra,
                     std::span<const std::string> model_types) {
  for (const auto& set : default_sets()) add(set);
  for (const Family* family : families_of(model_types))
    for (const std::string_view set : family->fused) {
      const auto parts = split_name(set, ',');
      add({parts.begin(), parts.end()});
    }
  for (const std::string& text : extra) {
    std::vector<std::string> names;
    for (const std::string_view part : split_name(text, ',')) {
      require<ValueError>(!part.empty() && part.find('.') == std::string_view::npos,
                          "--fuse {}: must be last name components separated by commas", text);
      names.emplace_back(part);
    }
    require<ValueError>(names.size() >= 2, "--fuse {}: one component, needs two or more", text);
    add(names);
    Extra& seen = extra_.emplace_back();
    seen.text = text;
    for (const std::string& name : names) seen.names.emplace(canonical(name));
  }
}

void FuseRules::see(std::string_view module) {
  const std::string_view last = canonical(last_component(module));
  for (Extra& extra : extra_) extra.used = extra.used || extra.names.count(last) != 0;
}

std::vector<std::string> FuseRules::warnings() const {
  std::vector<std::string> lines;
  for (const Extra& extra : extra_)
    if (!extra.used)
      lines.push_back(fmt::format("--fuse {}: matches no quantized module", extra.text));
  return lines;
}

std::string FuseRules::key(std::string_view module) const {
  const std::string_view last = last_component(module);
  const auto it = set_of_.find(canonical(last));
  if (it == set_of_.end()) return std::string(module);
  const std::string_view parent =
      module.substr(0, last.size() == module.size() ? 0 : module.size() - last.size() - 1);
  return fmt::format("{}.#{}", parent, it->second);
}

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
