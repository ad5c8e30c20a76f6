#include <map>

#include "checkpoint/plan/steps.h"
#include "checkpoint/recipe/recipe.h"
#include "core/require.h"

namespace nvfp4::checkpoint {

bool is_fp8(Action action) {
  return action == Action::fp8 || action == Action::fp8_channel || action == Action::fp8_block ||
         action == Action::mxfp8;
}

Fp8Module fp8_module(Action action, const std::string& module) {
  using Scales = Fp8Module::Scales;
  return {module, action == Action::fp8_block     ? Scales::block
                  : action == Action::fp8_channel ? Scales::channel
                  : action == Action::mxfp8       ? Scales::mx
                                                  : Scales::tensor};
}

RecipeChoice::RecipeChoice(const Recipe* recipe, const std::vector<std::string>& model_types)
    : recipe_(recipe) {
  if (recipe_ == nullptr) return;
  for (const RecipeRule& rule : recipe_->rules) {
    if (rule.fits_family(model_types)) of_family_.push_back(reports_.size());
    RecipeRuleReport& report = reports_.emplace_back();
    report.line = rule.line;
    report.text = rule.title.empty() ? rule.text : fmt::format("{}: {}", rule.title, rule.text);
    report.action = action_name(rule.action);
  }
  forced_.resize(reports_.size());
}

std::string RecipeChoice::at(int rule) const {
  const RecipeRule& r = recipe_->rules[static_cast<std::size_t>(rule)];
  return fmt::format("{}, line {}", r.title.empty() ? recipe_->title() : r.title, r.line);
}

Action RecipeChoice::action(const Selection& s) const {
  return s.rule < 0 ? Action::nvfp4 : recipe_->rules[static_cast<std::size_t>(s.rule)].action;
}

bool RecipeChoice::keeps(const Selection& s) const {
  return s.rule >= 0 && recipe_->rules[static_cast<std::size_t>(s.rule)].action == Action::keep;
}

void RecipeChoice::apply(const safetensors::TensorInfo& tensor, const Selector& selector,
                         Selection& s) {
  if (of_family_.empty()) return;
  const std::string kind = layer_kind(tensor.name, s);
  std::vector<std::size_t> fitting;
  for (const std::size_t r : of_family_)
    if (recipe_->rules[r].fits(tensor.name, kind)) fitting.push_back(r);
  if (fitting.empty() || s.included || selector.ignores(tensor.name)) return;
  const std::size_t last = fitting.back();
  const RecipeRule& rule = recipe_->rules[last];
  s.rule = static_cast<int>(last);
  bool weight = s.quantize;
  const bool exact = rule.names_exactly(tensor.name);
  if (!weight && rule.action != Action::keep && (exact || !rule.kinds.empty())) {
    const std::string why = selector.obstacle_of(tensor, s);
    require<ValueError>(why.empty() || !exact, ErrorCode::not_quantizable,
                        "{}: {} cannot be quantized: {}", at(s.rule), tensor.name, why);
    weight = why.empty();
    if (weight) forced_[last].push_back(fmt::format("{} ({})", module_of(tensor.name), s.kind));
  }
  for (const std::size_t r : fitting) ++(weight ? reports_[r].caught : reports_[r].usual);
  if (!weight) return;
  RecipeRuleReport& report = reports_[last];
  if (report.decided++ == 0) report.first = tensor.name;
  report.bytes += tensor.bytes;
  s.quantize = rule.action != Action::keep;
  s.reason = s.quantize ? "" : at(s.rule);
  s.ignored = !s.quantize;
}

void RecipeChoice::require_whole(std::span<const Choice> choices, const FuseRules& fused) const {
  if (recipe_ == nullptr) return;
  std::map<std::string, const Choice*> layers;  // one weight of each layer
  const auto action_of = [&](const Choice& c) {
    return c.selection->quantize ? action(*c.selection) : Action::keep;
  };
  const auto said = [&](const Choice& c) {
    return fmt::format("{} gets {} ({})", module_of(c.info->name), action_name(action_of(c)),
                       c.selection->rule < 0 ? "no rule fits it" : at(c.selection->rule));
  };
  for (const Choice& c : choices) {
    const Selection& s = *c.selection;
    const std::string_view module = module_of(c.info->name);
    if ((!s.quantize && !(s.ignored && keeps(s))) || is_decay_projection(module)) continue;
    const auto [layer, fresh] = layers.emplace(
        is_expert_weight(*c.info, s) ? expert_layer_of(module) : fused.key(module), &c);
    if (fresh || action_of(*layer->second) == action_of(c)) continue;
    throw ValueError(
        fmt::format("{} and {}: loaders build them as one layer, which must get one action",
                    said(*layer->second), said(c)));
  }
}

std::vector<std::string> RecipeChoice::warnings() const {
  std::vector<std::string> lines;
  for (std::size_t r = 0; r < reports_.size(); ++r) {
    const RecipeRuleReport& report = reports_[r];
    const bool keep = recipe_->rules[r].action == Action::keep;
    if (report.caught == 0 && (report.usual == 0 || !keep))
      lines.push_back(fmt::format(
          "{}: {}: matches no weight that {}", at(static_cast<int>(r)), recipe_->rules[r].text,
          report.usual == 0
              ? "can be quantized"
              : "is quantized by default; a rule that names a kind or a tensor does more"));
    const auto& names = forced_[r];
    if (names.empty()) continue;
    const std::string more = names.size() == 1 ? "" : fmt::format(" and {} more", names.size() - 1);
    lines.push_back(fmt::format("{}: most loaders build {}{} unquantized", at(static_cast<int>(r)),
                                names[0], more));
  }
  return lines;
}

}  // namespace nvfp4::checkpoint
