#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/match/entry_list.h"
#include "checkpoint/match/glob.h"
#include "checkpoint/match/glob_index.h"
#include "checkpoint/match/match_budget.h"
#include "core/json.h"

namespace nvfp4::checkpoint {

/// Weights that a configuration says are quantized alike.
struct DeclaredGroup {
  std::vector<std::string> targets;  ///< "Linear", module names, or "re:" and an expression
  std::string format;                ///< compressed-tensors
  std::int64_t bits = 0, group_size = 0;
  bool is_float = true;
  bool activations = false;

  bool is_nvfp4() const { return is_float && bits == 4 && (group_size == 16 || group_size == 0); }
};

/// What config.json ("quantization_config") or hf_quant_config.json says about quantization.
struct Declared {
  std::string file;
  std::string method, algorithm, format, moe_algorithm;
  std::vector<std::string> ignore;
  std::vector<DeclaredGroup> groups;
  std::map<std::string, std::string> layers;  ///< "quantized_layers": module -> algorithm
  std::vector<std::pair<Glob, std::string>> layer_globs;  ///< those of them that are globs
  GlobIndex layer_index;                                  ///< of layer_globs
  std::optional<std::int64_t> group_size;
  Json kv_cache;                          ///< null if there is none
  Json json;                              ///< all of it
  std::vector<std::string> missing_keys;  ///< of hf_quant_config.json, that vLLM insists on
  SharedBudget budget = std::make_shared<MatchBudget>();  ///< of the run

  bool is_compressed_tensors() const { return method == "compressed-tensors"; }
  bool is_mixed() const { return algorithm == "MIXED_PRECISION" || format == "mixed-precision"; }
  /// Whether NVFP4 weights come with activations in four bits.
  std::optional<bool> activations() const;
  /// What "quantized_layers" says of a module or of what holds it; null if nothing.
  const std::string* layer_algorithm(const std::string& module) const;
};

/// Declared::activations() of single weights, which may be in a group of their own.
class ActivationsOfModules {
 public:
  /// `declared` must outlive it. Throws FormatError for an expression that is invalid.
  explicit ActivationsOfModules(const Declared& declared);
  /// Throws FormatError for an expression that takes too long.
  std::optional<bool> of(const std::string& module) const;

 private:
  const Declared& declared_;
  std::optional<bool> general_;  ///< of the group of all linear layers
  std::vector<std::string> targets_;
  std::vector<bool> activations_;  ///< of each target's group
  std::optional<EntryList> list_;
};

/// Null if config.json says nothing. Throws FormatError for what is not JSON.
std::optional<Declared> declared_in_config(
    const std::string& text, const std::string& file,
    const SharedBudget& budget = std::make_shared<MatchBudget>());
/// The same of params.json, Mistral's own configuration.
std::optional<Declared> declared_in_params(
    const std::string& text, const std::string& file,
    const SharedBudget& budget = std::make_shared<MatchBudget>());
/// Throws FormatError for what is not JSON or has no "quantization".
Declared declared_in_hf_quant_config(const std::string& text, const std::string& file,
                                     const SharedBudget& budget = std::make_shared<MatchBudget>());

}  // namespace nvfp4::checkpoint
