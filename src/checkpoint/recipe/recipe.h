#pragma once

#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/families/select.h"
#include "checkpoint/match/pattern.h"
#include "nvfp4/scheme.h"

/// Recipes: YAML rules that decide the format of each layer. The last rule that fits a weight
/// decides.
namespace nvfp4::checkpoint {

/// The format that a rule gives to a weight.
enum class Action : std::uint8_t {
  nvfp4,
  w4a16,        ///< NVFP4 weights whose inputs are not quantized
  fp8,          ///< E4M3 with one scale for the matrix
  fp8_channel,  ///< E4M3 with one scale for each row
  fp8_block,    ///< E4M3 with one scale for each 128 x 128 block
  mxfp8,        ///< E4M3 with a power of two for each 32 columns
  keep,         ///< unquantized: its own dtype, or BF16 if the input is quantized
};
std::string_view action_name(Action action);

struct RecipeRule {
  std::string title;  ///< title of the imported recipe that has the rule; empty: the recipe itself
  int line = 0;       ///< line number in its file, from 1
  std::string text;   ///< conditions for messages: "kind attention, family llama"
  Action action = Action::nvfp4;
  /// The conditions. Each one that is not empty must fit with one of its entries.
  std::set<std::string, std::less<>> names;  ///< exact names of tensors or modules
  std::vector<Pattern> patterns;             ///< globs and expressions
  std::vector<std::string> kinds;            ///< kinds of layer_kinds()
  std::vector<std::string> families;         ///< globs of config.json's model_type

  bool fits_family(const std::vector<std::string>& model_types) const;
  /// Reports whether names and kind fit. Throws ValueError if an expression takes too long.
  bool fits(std::string_view tensor, std::string_view kind) const;
  /// Reports whether the rule has the exact name of the tensor or its module.
  bool names_exactly(std::string_view tensor) const;
};

struct Recipe {
  std::string name;  ///< name of a named recipe; empty for a file
  std::string file;  ///< file name for errors
  std::string text;  ///< YAML text, and behind it that of each imported recipe
  std::string about;
  std::optional<Scheme> scheme;
  /// The type of the KV cache: "FP8" or "NVFP4". Empty: that of the input.
  std::string kv_cache;
  std::vector<RecipeRule> rules;  ///< those of the imported recipes first

  /// Returns a title: "recipe mlp", or the name of the file.
  std::string title() const;
};

/// A file of recipes/, by its name without ".yaml".
struct NamedRecipe {
  std::string_view name, text;
};
const std::vector<NamedRecipe>& named_recipes();

/// Parses a recipe. Files that it imports are relative to the folder of `file`. Throws FormatError
/// "file:line: reason". Throws ValueError for an invalid pattern.
Recipe parse_recipe(const std::string& text, const std::string& file);

/// Reads a named recipe or a file. Throws ValueError if it is neither, IoError, and as
/// parse_recipe() does.
Recipe read_recipe(const std::string& name_or_file);

/// Returns "attention", "mlp", "experts", "shared_experts", or "linear" for any other matrix that
/// is quantized. For other tensors it returns the kind of classify(), with "_" for spaces:
/// "lm_head", "router", "vision".
std::string layer_kind(std::string_view tensor, const Selection& selection);

/// Returns all kinds that layer_kind() can return, those of quantized layers first.
std::vector<std::string> layer_kinds();

}  // namespace nvfp4::checkpoint
