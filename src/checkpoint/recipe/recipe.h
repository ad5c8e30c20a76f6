#pragma once

#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/match/pattern.h"
#include "nvfp4/scheme.h"

/// Which layers become what: rules in YAML, of which the last that fits a weight decides.
namespace nvfp4::checkpoint {

/// What becomes of a weight.
enum class Action : std::uint8_t {
  nvfp4,
  fp8,          ///< E4M3, one scale for the matrix
  fp8_channel,  ///< one for each row
  fp8_block,    ///< one for each 128 x 128 block
  mxfp8,        ///< a power of two for each 32 columns
  keep,         ///< in its dtype; what is quantized in the input becomes BF16
};
std::string_view action_name(Action action);

struct RecipeRule {
  int line = 0;      ///< of the file, from 1
  std::string text;  ///< its conditions, for people: "kind attention, family llama"
  Action action = Action::nvfp4;
  /// All that are not empty must fit, each by one of its entries.
  std::set<std::string, std::less<>> names;  ///< exact ones, of tensors or modules
  std::vector<Pattern> patterns;             ///< globs and expressions
  std::vector<std::string> kinds;            ///< of layer_kinds()
  std::vector<std::string> families;         ///< globs of config.json's model_type

  bool fits_family(const std::vector<std::string>& model_types) const;
  /// Throws ValueError if an expression takes too long.
  bool fits(std::string_view tensor, std::string_view kind) const;
  /// It says by its name which weight it is for.
  bool names_exactly(std::string_view tensor) const;
};

struct Recipe {
  std::string name;  ///< of the named ones; empty: it comes from a file
  std::string file;  ///< for errors
  std::string text;  ///< YAML
  std::string about;
  std::optional<Scheme> scheme;
  std::string
      kv_cache;  ///< "FP8", "NVFP4": what keys and values are kept in; "": as the input says
  std::vector<RecipeRule> rules;

  /// "recipe mlp", or the file's name.
  std::string title() const;
};

struct NamedRecipe {
  std::string_view name, text;
};
const std::vector<NamedRecipe>& named_recipes();

/// Throws FormatError "file:line: what is wrong", ValueError for a pattern that is not valid.
Recipe parse_recipe(const std::string& text, const std::string& file);

/// A named one, or else a file. Throws ValueError if it is neither, IoError, and as parse_recipe().
Recipe read_recipe(const std::string& name_or_file);

}  // namespace nvfp4::checkpoint
