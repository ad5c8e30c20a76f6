#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/families/select.h"
#include "nvfp4/safetensors.h"

/// Loaders build all routed experts of a layer as one module, with one kind of weights.
namespace nvfp4::checkpoint {

/// The names "a.experts.7.w1" and "a.experts.gate_up_proj" -> "a.experts"; empty for other names.
std::string expert_layer_of(std::string_view module);

/// The same for every expert: "a.experts.7.w1" -> "a.experts.*.w1". Other names stay.
std::string without_expert_number(std::string_view module);

/// Whether loaders take it for a part of its layer's expert matrices.
bool is_expert_weight(const safetensors::TensorInfo& tensor, const Selection& selection);

/// The expert weights of one layer. Loaders take all of them quantized, or none.
struct ExpertCount {
  std::size_t weights = 0, quantized = 0;

  bool is_partly() const { return quantized != 0 && quantized != weights; }
  /// What is wrong with a layer that is_partly().
  std::string complaint(std::string_view layer) const;
};

struct Choice {
  const safetensors::TensorInfo* info = nullptr;
  Selection* selection = nullptr;
};

/// Where the shape or dtype of one expert weight keeps it, keeps the others of its layer too. Where
/// the user's patterns keep some, leaves that and returns one warning for the layer.
std::vector<std::string> keep_expert_layers_whole(const std::vector<Choice>& choices);

}  // namespace nvfp4::checkpoint
