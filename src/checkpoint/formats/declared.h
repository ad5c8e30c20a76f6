#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "checkpoint/match/expression.h"
#include "checkpoint/match/glob.h"

namespace nvfp4::checkpoint {

/// An entry of `ignore` or `targets`: a name, a glob, or "re:" and an expression.
class Entry {
 public:
  /// Throws ValueError for an invalid expression.
  Entry(const std::string& text, const SharedBudget& budget);

  /// Whether it is meant for a module. An expression need match the start only, a prefix such as
  /// "model." may be left out of the others. Throws ValueError if that takes too long.
  bool matches(std::string_view module) const;

 private:
  SharedBudget budget_;
  std::optional<Expression> expression_;
  std::vector<Glob> globs_;  ///< also without "model."
};

/// The entries of one configuration, each compiled when it is asked for first, with one budget.
class CompiledEntries {
 public:
  explicit CompiledEntries(SharedBudget budget = std::make_shared<MatchBudget>())
      : budget_(std::move(budget)) {}
  /// Thread-safe; the entry stays where it is. Throws ValueError for an invalid expression.
  const Entry& at(const std::string& text);
  MatchBudget& budget() { return *budget_; }
  const SharedBudget& shared_budget() const { return budget_; }

 private:
  SharedBudget budget_;
  std::mutex mutex_;
  std::map<std::string, Entry> compiled_;
};

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
  std::optional<std::int64_t> group_size;
  nlohmann::ordered_json kv_cache;        ///< null if there is none
  nlohmann::ordered_json json;            ///< all of it
  std::vector<std::string> missing_keys;  ///< of hf_quant_config.json, that vLLM insists on
  std::shared_ptr<CompiledEntries> compiled = std::make_shared<CompiledEntries>();

  /// The lists of both spend one budget. To be called before anything is matched.
  void share_budget(const Declared& other) {
    compiled = std::make_shared<CompiledEntries>(other.compiled->shared_budget());
  }
  bool is_compressed_tensors() const { return method == "compressed-tensors"; }
  bool is_mixed() const { return algorithm == "MIXED_PRECISION" || format == "mixed-precision"; }
  /// Whether NVFP4 weights come with activations in four bits.
  std::optional<bool> activations() const;
  /// The same of one weight, which may be in a group of its own.
  std::optional<bool> activations(const std::string& module) const;
  /// Whether an entry of this file is meant for a module. Throws FormatError, which names it.
  bool matches(const std::string& entry, std::string_view module) const;
  /// What "quantized_layers" says of a module or of what holds it; null if nothing.
  const std::string* layer_algorithm(const std::string& module) const;
};

/// One entry, one module. Throws ValueError for an expression that is invalid or takes too long.
bool entry_matches(const std::string& entry, const std::string& module);

/// Null if config.json says nothing. Throws FormatError for what is not JSON.
std::optional<Declared> declared_in_config(const std::string& text, const std::string& file);
/// Throws FormatError for what is not JSON or has no "quantization".
Declared declared_in_hf_quant_config(const std::string& text, const std::string& file);

}  // namespace nvfp4::checkpoint
