#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

/// What llama.cpp calls the tensors of a family, and how it wants them.
/// Source: github.com/ggml-org/llama.cpp, gguf-py/gguf/tensor_mapping.py, conversion/.
namespace nvfp4::gguf {

/// A module under both names. "{l}" stands for a layer, "{e}" for an expert.
struct NamePair {
  std::string_view model, file;
  /// llama.cpp multiplies by a `.scale` beside it: only such a module can be NVFP4.
  bool scaled = false;
};

/// A kind of model.
struct Architecture {
  std::string_view model_type;  ///< of config.json: one, no pattern
  std::string_view class_name;  ///< of config.json's "architectures"
  std::string_view name;        ///< general.architecture
  std::span<const std::span<const NamePair>> modules;
  /// Rows of q and k are reordered, so that the halves that rotary embeddings turn together are
  /// neighbours.
  bool interleaves = false;
  bool experts = false;
  /// Multi-head latent attention, which the file stores as attn_kv_b, not taken apart.
  bool latent = false;
  /// The router's scores are sigmoids, not a softmax.
  bool sigmoid = false;
  /// Whether the graph makes the weights of the chosen experts add up to 1, where no key says it.
  std::optional<bool> normalizes = {};
};

// Of several that share a GGUF name and have experts or not alike, a file of unknown origin is
// taken for the one with its kind of scores, else for the first in the table of families.
extern const Architecture kLlamaNames, kMistralNames, kMixtralNames, kQwen2Names, kQwen2MoeNames,
    kQwen3Names, kQwen3MoeNames, kDeepSeekV3Names, kDeepSeekV2Names;

}  // namespace nvfp4::gguf
