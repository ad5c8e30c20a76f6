#pragma once

#include <span>
#include <string>
#include <vector>

#include "checkpoint/plan/plan.h"

/// The tensors that become plain, and their places in the output.
namespace nvfp4::checkpoint {

/// Experts that the input stores one by one, for a model whose family reads stacks of experts.
struct ExpertStack {
  std::string name;                 ///< "model.layers.0.mlp.experts.gate_up_proj"
  std::vector<std::int64_t> shape;  ///< [experts, K, N] or [experts, N, K]
  StackForm form;
  std::size_t parts = 1;  ///< number of matrices of an expert; gate comes before up
  std::vector<const LogicalTensor*> members;  ///< the weights, expert by expert
};

/// Returns the stacks that have a quantized member. Throws FormatError if an expert is missing or
/// has another shape.
std::vector<ExpertStack> find_stacks(std::span<const LogicalTensor> tensors,
                                     const ModelConfig& config);

/// Adds the plan's last tensor to the shard, dequantized to `plain`.
void add_decoded(Plan& plan, PlannedShard& shard, safetensors::DType plain);

/// Adds the plan's last tensor, a matrix, to the shard in Q8_0.
void add_q8_0(Plan& plan, PlannedShard& shard);

/// Adds the stack to the shard, and its members to the plan's tensors.
void add_stack(Plan& plan, PlannedShard& shard, const ExpertStack& stack, safetensors::DType plain);

}  // namespace nvfp4::checkpoint
