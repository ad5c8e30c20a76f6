#pragma once

#include <span>
#include <string>
#include <vector>

#include "checkpoint/families/expert_layers.h"
#include "checkpoint/families/fuse.h"
#include "checkpoint/families/select.h"
#include "checkpoint/formats/format.h"
#include "checkpoint/recipe/recipe.h"
#include "nvfp4/checkpoint.h"

namespace nvfp4::checkpoint {

bool is_fp8(Action action);
/// That it becomes; requires is_fp8.
Fp8Module fp8_module(Action action, const std::string& module);

/// A recipe at work on the tensors of a model. What is usually kept (norms, routers, heads, towers)
/// is quantized only by a rule that names its kind, or the tensor exactly.
class RecipeChoice {
 public:
  /// `recipe` may be null, which changes nothing.
  RecipeChoice(const Recipe* recipe, const std::vector<std::string>& model_types);

  /// After `selector` has selected the tensor; its patterns go first. Throws ValueError if a rule
  /// names a tensor that cannot be quantized.
  void apply(const safetensors::TensorInfo& tensor, const Selector& selector, Selection& selection);
  /// What becomes of it; that of a rule, or of what is quantized without one.
  Action action(const Selection& selection) const;
  /// Whether a rule keeps it.
  bool keeps(const Selection& selection) const;

  /// Throws ValueError if the rules give parts of a layer that loaders build as one several
  /// actions.
  void require_whole(std::span<const Choice> choices, const FuseRules& fused) const;

  std::vector<RecipeRuleReport> rules() const { return reports_; }
  /// One line for each rule without an effect, or that quantizes what loaders do not expect.
  std::vector<std::string> warnings() const;

 private:
  std::string at(int rule) const;

  const Recipe* recipe_;
  std::vector<std::size_t> of_family_;  ///< rules that the model's family leaves
  std::vector<RecipeRuleReport> reports_;
  std::vector<std::vector<std::string>> forced_;  ///< by each rule, against the defaults
};

}  // namespace nvfp4::checkpoint
