#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "checkpoint/base/json.h"
#include "checkpoint/match/glob.h"
#include "checkpoint/match/pattern.h"

namespace nvfp4::checkpoint {

/// A group of weights that a configuration declares with one form of quantization.
struct DeclaredGroup {
  std::vector<std::string> targets;  ///< "Linear", module names, or "re:" and an expression
  std::string format;                ///< only of compressed-tensors
  std::int64_t bits = 0, group_size = 0;
  bool is_float = true, is_symmetric = true;
  bool activations = false;

  bool is_nvfp4() const { return is_float && bits == 4 && (group_size == 16 || group_size == 0); }
  /// Reports whether weights with so many bits may be in the group.
  bool fits(std::int64_t wanted) const { return bits == 0 || (is_float && bits == wanted); }
};

/// A member of a configuration that declares a form of weights that is not read.
struct UnreadMember {
  std::string file, text, form;
};

/// The quantization that config.json ("quantization_config") or hf_quant_config.json declares.
struct Declared {
  std::string file;
  std::string method, algorithm, format, moe_algorithm;
  std::optional<UnreadMember> unread;
  std::string checkpoint_format;  ///< only of GPTQ
  std::string version;            ///< only of AWQ
  std::int64_t bits = 0;          ///< of GPTQ and AWQ; 0: unknown, or not the same in all layers
  std::vector<std::string> ignore;
  std::vector<DeclaredGroup> groups;
  std::map<std::string, std::string> layers;  ///< "quantized_layers": module -> algorithm
  std::vector<std::pair<Glob, std::string>> layer_globs;  ///< entries of `layers` that are globs
  GlobIndex layer_index;                                  ///< index of `layer_globs`
  std::optional<std::int64_t> group_size;
  Json kv_cache;                          ///< null if the key is absent
  Json json;                              ///< the whole configuration if the method is "fp8"
  std::vector<std::string> missing_keys;  ///< keys that vLLM needs and hf_quant_config.json lacks
  SharedBudget budget = std::make_shared<MatchBudget>();  ///< shared by the whole run

  bool is_compressed_tensors() const { return method == "compressed-tensors"; }
  bool is_mixed() const { return algorithm == "MIXED_PRECISION" || format == "mixed-precision"; }
  /// Reports whether NVFP4 weights come with 4-bit activations. Null: the configuration does not
  /// say.
  std::optional<bool> activations() const;
  /// Reports whether activations() is so for every module. Then no name has to be compared.
  bool has_one_scheme() const;
  /// Returns the algorithm in "quantized_layers" of a module or of the nearest module that contains
  /// it. Null if there is none.
  const std::string* layer_algorithm(const std::string& module) const;
};

/// The targets of a configuration's groups, for many queries. Each expression is compiled once.
class DeclaredTargets {
 public:
  /// Indexes the targets. `declared` must outlive the object. Throws FormatError for an invalid
  /// expression.
  explicit DeclaredTargets(const Declared& declared);

  struct Group {
    const DeclaredGroup* first = nullptr;  ///< null: none
    bool fits = false;                     ///< the first group fits, or another one does
  };
  /// Returns the groups whose targets name the module, or else the groups of a class of modules.
  /// Throws FormatError for an expression that takes too long, as all members do.
  Group group_of(const std::string& module, std::int64_t bits) const;
  /// Reports whether a target matches the module. True if there are no groups.
  bool hold(const std::string& module) const;
  /// Reports whether NVFP4 weights of the module come with 4-bit activations, as
  /// Declared::activations() does for all modules.
  std::optional<bool> activations_of(const std::string& module) const;

 private:
  /// The targets of groups that are alike: for a module one of them is as good as another.
  struct Alike {
    const DeclaredGroup* group = nullptr;  ///< the first one
    std::vector<std::string> targets;
    std::vector<std::pair<std::size_t, const DeclaredGroup*>> places;  ///< of each target, in order
    std::optional<EntryList> list;
  };
  /// Returns the place of the first target that names the module, among groups that `fit`.
  template <class Fit>
  const std::pair<std::size_t, const DeclaredGroup*>* first(const std::string& module,
                                                            Fit fit) const;

  const Declared& declared_;
  bool of_linear_ = false;
  std::vector<const DeclaredGroup*> general_;  ///< groups with a class as target
  std::map<std::tuple<bool, bool, bool, bool>, Alike> named_;
};

/// Returns what config.json declares, or null if it has no quantization_config. Throws FormatError
/// for invalid JSON.
std::optional<Declared> declared_in_config(
    const std::string& text, const std::string& file,
    const SharedBudget& budget = std::make_shared<MatchBudget>());
std::optional<Declared> declared_in_config(
    const Json& json, const std::string& file,
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
