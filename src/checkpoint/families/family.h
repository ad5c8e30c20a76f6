#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/families/gguf_names.h"
#include "checkpoint/families/name_rule.h"

/// What is particular to a family of models. A model that no row names is taken for what the names
/// and shapes of its tensors say: kept_names.h, fuse.cc, experts.cc.
/// To add a family: a row in families.cc.
namespace nvfp4::checkpoint {

/// How the experts of a layer lie in one tensor.
enum class Stacks : std::uint8_t {
  unknown,      ///< the shapes tell
  rows,         ///< [E, N, K], as a linear layer stores them; single experts are read, too
  rows_only,    ///< the same, but single experts have no place
  columns,      ///< [E, K, N], as x · W needs it, and single experts have no place
  interleaved,  ///< the same, the outputs of gate and up in turn
};

struct Family {
  /// Patterns of config.json's model_type, as of NameRule. A type may be in several rows.
  std::string_view model_types;
  /// Modules that are kept, or are not what their names say; they come before those of any family.
  std::span<const NameRule> towers = {}, modules = {};
  /// Last name components that share a global scale, besides those of any family: "w1,w3".
  std::span<const std::string_view> fused = {};
  Stacks stacks = Stacks::unknown;
  /// Loaders read stacks of experts, and pass over single ones.
  bool only_stacks = false;
  /// ModelOpt exports the experts of a layer as stacks in NVFP4, and loaders read them so.
  bool exported_as_stacks = false;
  /// transformers makes layers of the experts of a stack, one by one.
  bool unstacked_by_transformers = false;
  /// c_attn and so on are GPT-2's Conv1D, which stores [in, out].
  bool conv1d = false;
  /// The module whose weight is the embedding, which no checkpoint has.
  std::string_view tied_head = {};
  /// Parts of names, separated by spaces, of what transformers keeps in FP32.
  std::string_view f32 = {};
  const gguf::Architecture* gguf = nullptr;  ///< null: llama.cpp's names are not known here
};

const std::vector<const Family*>& families();
/// Those that name one of the types, in the order of the table.
std::vector<const Family*> families_of(std::span<const std::string> model_types);
std::vector<const Family*> families_of(std::string_view model_type);

/// Adds a family, before all others, for as long as it lives; not while another thread works.
class AddedFamily {
 public:
  explicit AddedFamily(const Family& family);
  ~AddedFamily();
  AddedFamily(const AddedFamily&) = delete;
  AddedFamily& operator=(const AddedFamily&) = delete;
};

}  // namespace nvfp4::checkpoint
