#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace nvfp4::checkpoint {

/// The names of a model's modules in transformers 5, which differ from those in a checkpoint:
/// "visual.blocks.0.attn.qkv" becomes "model.visual.blocks.0.attn.qkv".
class TransformersNames {
 public:
  /// config.json's model_type; one that is not known renames nothing.
  explicit TransformersNames(std::string_view model_type);

  std::string name_of(std::string_view module) const;
  /// Whether the module has a matrix and is no linear layer: the routers of experts.
  bool unlike_linear(std::string_view module) const;

 private:
  using Parts = std::vector<std::string_view>;
  struct Rule {
    Parts old_start, new_start;
  };
  std::vector<Rule> rules_;
  std::vector<Parts> unlike_;  ///< ends of names
};

}  // namespace nvfp4::checkpoint
