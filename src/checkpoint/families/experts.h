#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/families/model_config.h"
#include "nvfp4/safetensors.h"

/// Experts stored as one 3-D tensor. They are written one matrix an expert, as loaders want them.
namespace nvfp4::checkpoint {

/// One [rows, cols] weight inside a tensor: element (n, k) is at
/// offset + n * row_stride + k * col_stride, in elements.
struct WeightSlice {
  std::string module;  ///< that it becomes in the output
  std::int64_t rows = 0, cols = 0;
  std::int64_t offset = 0, row_stride = 0, col_stride = 1;
  /// Contiguous elements that are read for its amax. The slices of one expert share a global
  /// scale, so together these cover the expert and it does not matter how they divide it.
  std::int64_t amax_begin = 0, amax_count = 0;
};

/// The slices of a 3-D expert tensor, expert by expert: gate before up. `[E, N, K]` or `[E, K, N]`
/// follows from config.json's hidden_size, and for a square matrix from its model_type, unless
/// `transposed` says that it is [E, K, N] or not. `whole`: gate and up of an expert are one matrix,
/// its rows in the order of the stack, under the name of gate. Throws ValueError that names the
/// tensor if nothing tells.
std::vector<WeightSlice> slice_experts(const safetensors::TensorInfo& tensor,
                                       const ModelConfig& config,
                                       std::optional<bool> transposed = {}, bool whole = false);

/// Whether a format that has stacks keeps those of the model.
bool exported_as_stacks(const ModelConfig& config);

/// How a family of models stacks the experts of a layer.
struct StackForm {
  bool transposed = false;   ///< [E, K, N], as x · W needs it
  bool interleaved = false;  ///< outputs of gate and up in turn, instead of one after the other
};

/// That of the model, if its family reads stacks and no single experts.
std::optional<StackForm> stack_form(const ModelConfig& config);

/// What loaders of the model say to experts that are written one by one; `quantized`: modules.
std::vector<std::string> warnings_of_single_experts(const ModelConfig& config,
                                                    const std::vector<std::string>& quantized);

}  // namespace nvfp4::checkpoint
