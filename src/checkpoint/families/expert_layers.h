#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/families/select.h"
#include "nvfp4/checkpoint/safetensors.h"

/// Layers of experts. Loaders build all routed experts of a layer as one module, with one kind of
/// weights.
namespace nvfp4::checkpoint {

/// Returns "a.experts" for "a.experts.7.w1" and "a.experts.gate_up_proj", "a.moe" for
/// "a.moe.gate_proj", and "" for other names.
std::string expert_layer_of(std::string_view module);

/// Returns one name for all experts: "a.experts.7.w1" becomes "a.experts.*.w1". Other names stay.
std::string without_expert_number(std::string_view module);

/// Reports whether loaders read the tensor as a part of its layer's expert matrices.
bool is_expert_weight(const safetensors::TensorInfo& tensor, const Selection& selection);

/// The number of expert weights of one layer. Loaders need all of them quantized, or none.
struct ExpertCount {
  std::size_t weights = 0, quantized = 0;

  bool is_partly() const { return quantized != 0 && quantized != weights; }
  /// Returns the message for a layer that is_partly().
  std::string complaint(std::string_view layer) const;
};

struct Choice {
  const safetensors::TensorInfo* info = nullptr;
  Selection* selection = nullptr;
};

/// Excludes all weights of a layer if the shape or dtype of one excludes it. If the user's patterns
/// exclude some, changes nothing and returns one warning for the layer.
std::vector<std::string> keep_expert_layers_whole(const std::vector<Choice>& choices);

}  // namespace nvfp4::checkpoint
