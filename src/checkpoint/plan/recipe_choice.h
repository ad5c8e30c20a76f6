#pragma once

#include <span>
#include <string>
#include <vector>

#include "checkpoint/families/experts.h"
#include "checkpoint/families/fuse.h"
#include "checkpoint/families/select.h"
#include "checkpoint/formats/format.h"
#include "checkpoint/recipe/recipe.h"
#include "nvfp4/checkpoint/checkpoint.h"

namespace nvfp4::checkpoint {

bool is_fp8(Action action);
/// Returns the FP8 module that the action makes; requires is_fp8(action).
Fp8Module fp8_module(Action action, const std::string& module);

/// Applies a recipe to the tensors of a model. Tensors that are usually excluded (norms, routers,
/// heads, towers) need a rule that names their kind or the exact tensor.
class RecipeChoice {
 public:
  /// Takes a recipe. Null changes nothing.
  RecipeChoice(const Recipe* recipe, const std::vector<std::string>& model_types);

  /// Applies the rules after `selector` has selected the tensor; its patterns have priority. Throws
  /// ValueError if a rule names a tensor that cannot be quantized.
  void apply(const safetensors::TensorInfo& tensor, const Selector& selector, Selection& selection);
  /// Returns the action of the tensor's rule, or nvfp4 if it has none.
  Action action(const Selection& selection) const;
  /// Reports whether a rule excludes the tensor.
  bool keeps(const Selection& selection) const;

  /// Throws ValueError if rules give different actions to parts of a layer that loaders fuse.
  void require_whole(std::span<const Choice> choices, const FuseRules& fused) const;

  std::vector<RecipeRuleReport> rules() const { return reports_; }
  /// Returns a line for each rule without an effect, and for each that quantizes modules which
  /// loaders do not expect.
  std::vector<std::string> warnings() const;

 private:
  std::string at(int rule) const;

  const Recipe* recipe_;
  std::vector<std::size_t> of_family_;  ///< indices of the rules for the model's family
  std::vector<RecipeRuleReport> reports_;
  /// Modules that each rule quantizes against the defaults.
  std::vector<std::vector<std::string>> forced_;
};

}  // namespace nvfp4::checkpoint
