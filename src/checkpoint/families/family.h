#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace nvfp4::gguf {
struct Architecture;
}

/// The properties of a family of models. For a model without a row, the names and shapes of its
/// tensors decide: kept_names.h, fuse.cc, experts.cc. To add a family, add a row to families.cc.
namespace nvfp4::checkpoint {

enum class Where {
  any,    ///< one part of the module's name
  first,  ///< the first part
  last,   ///< the last parts, as many as the pattern has
  last3,  ///< one of the last three parts
  whole,  ///< all parts
};

/// A rule for modules by name. Patterns are separated by spaces, their parts by dots. "x" is a
/// whole part, "x*" starts a part, "*x" ends it, "*x*" is inside it.
struct NameRule {
  /// "": stop here. The module is ordinary, although a later rule would match.
  std::string_view kind;
  std::string_view reason;
  Where where;
  std::string_view names;
  bool linear = true;  ///< a loader may build the module as a linear layer
};

using Parts = std::span<const std::string_view>;

/// Reports whether a pattern of a list, as in NameRule, matches the parts of a module's name.
bool matches_one(std::string_view patterns, Where where, Parts parts);
/// Reports whether a pattern matches the whole `model_type`.
bool is_model_type(std::string_view patterns, std::string_view model_type);

/// The arrangement of a layer's experts in one tensor.
enum class Stacks : std::uint8_t {
  unknown,      ///< decided by the shapes
  rows,         ///< [E, N, K] as in a linear layer; loaders also read single experts
  rows_only,    ///< [E, N, K]; loaders read no single experts
  columns,      ///< [E, K, N] as in x · W; loaders read no single experts
  interleaved,  ///< [E, K, N]; outputs of gate and up alternate
};

struct Family {
  /// Patterns for model_type of config.json, as in NameRule. A type may be in several rows.
  std::string_view model_types;
  /// The rules of this family: excluded modules, and modules that the common rules would exclude
  /// wrongly. They are tried before the common rules.
  std::span<const NameRule> towers = {}, modules = {};
  /// Sets of last name components that share a global scale, beside the common ones: "w1,w3".
  std::span<const std::string_view> fused = {};
  Stacks stacks = Stacks::unknown;
  /// Loaders read stacks of experts and ignore single ones.
  bool only_stacks = false;
  /// ModelOpt exports the experts of a layer as NVFP4 stacks, and loaders read them.
  bool exported_as_stacks = false;
  /// Layers such as c_attn are GPT-2's Conv1D, which stores [in, out].
  bool conv1d = false;
  /// Names that loaders give to excluded modules, beside those of the checkpoint, separated by
  /// spaces: a head that shares the embedding's weight, and towers ("visual.*").
  std::string_view second_names = {};
  /// Parts of the names of tensors that transformers loads as FP32, separated by spaces.
  std::string_view f32 = {};
  /// The names in llama.cpp of a family that known_architectures() does not have, or null.
  const gguf::Architecture* gguf = nullptr;
};

const std::vector<const Family*>& families();
/// Returns the families of any of the types, in the order of the table.
std::vector<const Family*> families_of(std::span<const std::string> model_types);
std::vector<const Family*> families_of(std::string_view model_type);

/// Adds a family before all others during its lifetime. No other thread may use the families
/// meanwhile.
class AddedFamily {
 public:
  explicit AddedFamily(const Family& family);
  ~AddedFamily();
  AddedFamily(const AddedFamily&) = delete;
  AddedFamily& operator=(const AddedFamily&) = delete;
};

}  // namespace nvfp4::checkpoint
