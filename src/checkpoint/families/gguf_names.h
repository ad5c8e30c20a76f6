#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

/// The names of a family's tensors in llama.cpp, and the changes that llama.cpp needs.
/// Source: github.com/ggml-org/llama.cpp, gguf-py/gguf/tensor_mapping.py, conversion/.
namespace nvfp4::gguf {

/// A dimension of a tensor, as the keys of a file give it. gguf/faults.cc computes it.
enum class Size : std::uint8_t {
  none,
  one,
  vocabulary,
  embedding,
  feed_forward,
  queries,  ///< rows of all heads
  keys,
  values,
  outputs,  ///< columns of attn_output
  head,
  experts,
  expert_size,
  shared_size,
  query_rank,
  latent,        ///< compressed keys and values
  latent_rope,   ///< compressed keys and values, and the rotary part of the keys
  latent_heads,  ///< decompressed keys and values of all heads
};

using Shape = std::array<Size, 3>;  ///< followed by `none`

/// The two names of a module. "{l}" stands for a layer, "{e}" for an expert.
struct NamePair {
  std::string_view model, file;
  Shape shape = {};  ///< dimensions of the file's weight
  /// llama.cpp multiplies by a `.scale` beside the weight. Only such a module can be NVFP4.
  bool scaled = false;
};

/// The layers in which the tensors of a group must be present.
enum class Presence : std::uint8_t {
  all,
  optional,   ///< no layer
  dense,      ///< layers without experts
  sparse,     ///< layers with experts
  together,   ///< layers with experts, if one layer has it
  shared,     ///< layers with experts, if some experts are shared
  low_rank,   ///< all, if queries have a rank
  full_rank,  ///< all, if queries have none
};

/// Modules that a model has together.
struct NameGroup {
  std::span<const NamePair> modules;
  Presence presence = Presence::all;
};

/// A factor of the model's graph, by its names in config.json and in the file.
struct FactorKey {
  std::string_view model, file;
};

/// A kind of model in llama.cpp.
struct Architecture {
  std::string_view model_type;  ///< model_type of config.json; one type and no pattern
  std::string_view class_name;  ///< name in "architectures" of config.json
  std::string_view name;        ///< general.architecture
  std::span<const NameGroup> groups;
  /// Rows of q and k are reordered so that the two halves of a rotary embedding alternate.
  bool interleaves = false;
  bool experts = false;
  /// The model has multi-head latent attention. The file stores it as attn_kv_b in one piece.
  bool latent = false;
  /// The router's scores are sigmoids instead of a softmax.
  bool sigmoid = false;
  /// The graph's fixed choice to normalize the weights of the chosen experts to the sum 1, or not
  /// to. Null: the choice is not fixed.
  std::optional<bool> normalizes = {};
  std::span<const FactorKey> factors = {};  ///< 1 where config.json has none
};

// Architectures may share a GGUF name and both have experts, or both have none. A file of unknown
// origin then gets the one with its kind of scores. If there is none, it gets the first in the
// table of families.
extern const Architecture kLlamaNames, kMistralNames, kMixtralNames, kQwen2Names, kQwen2MoeNames,
    kQwen3Names, kQwen3MoeNames, kGraniteNames, kDeepSeekV3Names, kDeepSeekV2Names;

}  // namespace nvfp4::gguf
