#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace nvfp4::checkpoint {

/// The text of data/transformers_names.txt. A line has model types, then " | " and the starts of
/// names that are other in transformers, "old>new". The longest match counts; # is a number.
extern const std::string_view kTransformersNames;

/// The names of a model's modules in transformers 5. They can differ from those in a checkpoint:
/// "visual.blocks.0.attn.qkv" becomes "model.visual.blocks.0.attn.qkv".
class TransformersNames {
 public:
  /// `model_type`: from config.json. Modules of an unknown type keep their names.
  explicit TransformersNames(std::string_view model_type);

  std::string name_of(std::string_view module) const;

 private:
  using Parts = std::vector<std::string_view>;
  struct Rule {
    Parts old_start, new_start;
  };
  std::vector<Rule> rules_;
};

}  // namespace nvfp4::checkpoint
