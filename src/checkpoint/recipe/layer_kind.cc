#include "checkpoint/recipe/layer_kind.h"

#include <algorithm>

#include "checkpoint/families/kept_names.h"
#include "checkpoint/families/match_names.h"

namespace nvfp4::checkpoint {
namespace {

constexpr std::string_view kLinearKind = "linear";

/// The kinds of linear layers; the first rule that fits decides.
constexpr NameRule kLayerKinds[] = {
    {"shared_experts", "", Where::any, "*shared_expert* *shared_mlp*"},
    {"attention", "", Where::any, "*attn* *attention* *Attention*"},
    {"mlp", "", Where::any, "*mlp* *ffn* feed_forward* *_feed_forward ff DenseReluDense"},
    {"attention", "", Where::last,
     "q_proj k_proj v_proj o_proj qkv_proj qkv wq wk wv wo q k v o query key value to_q to_k to_v "
     "to_out.0 Wqkv Wo"},
    {"mlp", "", Where::last,
     "gate_proj up_proj down_proj gate_up_proj w1 w2 w3 wi wi_0 wi_1 wo fc1 fc2 *linear1 *linear2 "
     "intermediate.dense output.dense dense_h_to_4h dense_4h_to_h fc_in fc_out c_fc"},
};

std::string with_underscores(std::string_view kind) {
  std::string text(kind);
  std::ranges::replace(text, ' ', '_');
  return text;
}

}  // namespace

std::string layer_kind(std::string_view tensor, const Selection& selection) {
  const std::string& kind = selection.kind;
  if (kind == "expert" || kind == "stacked experts") return "experts";
  if (kind != kLinearKind) return with_underscores(kind);
  const std::vector<std::string_view> parts = split_name(module_of(tensor));
  for (const NameRule& rule : kLayerKinds)
    if (matches_one(rule.names, rule.where, parts)) return std::string(rule.kind);
  return std::string(kLinearKind);
}

std::vector<std::string> layer_kinds() {
  std::vector<std::string> kinds;
  const auto add = [&](std::string_view kind) {
    std::string text = with_underscores(kind);
    if (!kind.empty() && std::ranges::find(kinds, text) == kinds.end())
      kinds.push_back(std::move(text));
  };
  for (const std::string_view kind : {"attention", "mlp", "experts", "shared_experts", "linear"})
    add(kind);
  for (const std::span<const NameRule> table :
       {std::span<const NameRule>(kModules), std::span<const NameRule>(kTowers),
        std::span<const NameRule>(kNorms)})
    for (const NameRule& rule : table) add(rule.kind);
  for (const Family* family : families())
    for (const std::span<const NameRule> table : {family->towers, family->modules})
      for (const NameRule& rule : table) add(rule.kind);
  for (const std::string_view kind : {"convolution", "bias", "vector", "other"}) add(kind);
  return kinds;
}

}  // namespace nvfp4::checkpoint
