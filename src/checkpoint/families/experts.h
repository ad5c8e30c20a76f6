#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/families/model_config.h"
#include "checkpoint/families/select.h"
#include "nvfp4/checkpoint/safetensors.h"

/// Experts stored as one 3-D tensor. The output has one matrix for each expert, as loaders need
/// them.
namespace nvfp4::checkpoint {

/// One [rows, cols] weight in a tensor. Element (n, k) is at offset + n * row_stride + k *
/// col_stride, counted in elements.
struct WeightSlice {
  std::string module;  ///< name of its module in the output
  std::int64_t rows = 0, cols = 0;
  std::int64_t offset = 0, row_stride = 0, col_stride = 1;
  /// Contiguous elements that are read for the amax. The slices of one expert share a global scale.
  /// Together they cover the expert, and their boundaries do not matter.
  std::int64_t amax_begin = 0, amax_count = 0;
};

/// Returns the slices of a 3-D expert tensor by expert, gate before up. `transposed` says whether
/// the tensor is [E, K, N] and not [E, N, K]. Without it, hidden_size of config.json decides, and
/// model_type for a square matrix. `whole`: gate and up of an expert are one matrix. It has the
/// name of gate, and its rows are in the order of the stack. Throws ValueError with the tensor's
/// name if the orientation is unknown.
std::vector<WeightSlice> slice_experts(const safetensors::TensorInfo& tensor,
                                       const ModelConfig& config,
                                       std::optional<bool> transposed = {}, bool whole = false);

/// Reports whether a format that has stacks keeps the stacks of this model.
bool exported_as_stacks(const ModelConfig& config);

/// The arrangement of the experts of a layer in a stack.
struct StackForm {
  bool transposed = false;   ///< [E, K, N] as in x · W
  bool interleaved = false;  ///< outputs of gate and up alternate; otherwise gate is first
};

/// Returns the arrangement for a family that reads stacks and no single experts, otherwise null.
std::optional<StackForm> stack_form(const ModelConfig& config);

/// Returns the warnings for a model whose loaders do not read experts one by one. `quantized`:
/// names of quantized modules.
std::vector<std::string> warnings_of_single_experts(const ModelConfig& config,
                                                    const std::vector<std::string>& quantized);

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
