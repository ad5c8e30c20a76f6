#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/base/json.h"
#include "checkpoint/match/entry_list.h"
#include "checkpoint/match/glob.h"
#include "checkpoint/match/glob_index.h"
#include "checkpoint/match/match_budget.h"

namespace nvfp4::checkpoint {

/// A group of weights that a configuration declares with one form of quantization.
struct DeclaredGroup {
  std::vector<std::string> targets;  ///< "Linear", module names, or "re:" and an expression
  std::string format;                ///< only of compressed-tensors
  std::int64_t bits = 0, group_size = 0;
  bool is_float = true;
  bool activations = false;

  bool is_nvfp4() const { return is_float && bits == 4 && (group_size == 16 || group_size == 0); }
};

/// The quantization that config.json ("quantization_config") or hf_quant_config.json declares.
struct Declared {
  std::string file;
  std::string method, algorithm, format, moe_algorithm;
  std::vector<std::string> ignore;
  std::vector<DeclaredGroup> groups;
  std::map<std::string, std::string> layers;  ///< "quantized_layers": module -> algorithm
  std::vector<std::pair<Glob, std::string>> layer_globs;  ///< entries of `layers` that are globs
  GlobIndex layer_index;                                  ///< index of `layer_globs`
  std::optional<std::int64_t> group_size;
  Json kv_cache;                          ///< null if the key is absent
  Json json;                              ///< the whole configuration
  std::vector<std::string> missing_keys;  ///< keys that vLLM needs and hf_quant_config.json lacks
  SharedBudget budget = std::make_shared<MatchBudget>();  ///< shared by the whole run

  bool is_compressed_tensors() const { return method == "compressed-tensors"; }
  bool is_mixed() const { return algorithm == "MIXED_PRECISION" || format == "mixed-precision"; }
  /// Reports whether NVFP4 weights come with 4-bit activations. Null: the configuration does not
  /// say.
  std::optional<bool> activations() const;
  /// Returns the algorithm in "quantized_layers" of a module or of the nearest module that contains
  /// it. Null if there is none.
  const std::string* layer_algorithm(const std::string& module) const;
};

/// Declared::activations() for single modules, which may be in a group of their own.
class ActivationsOfModules {
 public:
  /// Indexes the targets of the groups. `declared` must outlive the object. Throws FormatError for
  /// an invalid expression.
  explicit ActivationsOfModules(const Declared& declared);
  /// Reports whether the module has 4-bit activations. Throws FormatError for an expression that
  /// takes too long.
  std::optional<bool> of(const std::string& module) const;

 private:
  const Declared& declared_;
  std::optional<bool> general_;  ///< value of the group with the target "Linear"
  std::vector<std::string> targets_;
  std::vector<bool> activations_;  ///< value of the group of each target
  std::optional<EntryList> list_;
};

/// Returns what config.json declares, or null if it has no quantization_config. Throws FormatError
/// for invalid JSON.
std::optional<Declared> declared_in_config(
    const std::string& text, const std::string& file,
    const SharedBudget& budget = std::make_shared<MatchBudget>());
/// Returns what params.json declares, Mistral's own configuration. See declared_in_config().
std::optional<Declared> declared_in_params(
    const std::string& text, const std::string& file,
    const SharedBudget& budget = std::make_shared<MatchBudget>());
/// Returns what hf_quant_config.json declares. Throws FormatError for invalid JSON or without
/// "quantization".
Declared declared_in_hf_quant_config(const std::string& text, const std::string& file,
                                     const SharedBudget& budget = std::make_shared<MatchBudget>());

}  // namespace nvfp4::checkpoint
