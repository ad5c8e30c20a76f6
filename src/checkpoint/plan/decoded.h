#pragma once

#include <span>
#include <string>
#include <vector>

#include "checkpoint/plan/plan.h"

/// What becomes plain again, and where it is written.
namespace nvfp4::checkpoint {

/// Experts stored one by one, of a model whose family reads stacks of them.
struct ExpertStack {
  std::string name;                 ///< "model.layers.0.mlp.experts.gate_up_proj"
  std::vector<std::int64_t> shape;  ///< [experts, K, N] or [experts, N, K]
  StackForm form;
  std::size_t parts = 1;                      ///< matrices of an expert: gate before up
  std::vector<const LogicalTensor*> members;  ///< expert by expert
};

/// Those of a checkpoint in which some of their members are quantized. Throws FormatError where an
/// expert is missing or has another shape.
std::vector<ExpertStack> find_stacks(std::span<const LogicalTensor> tensors,
                                     const ModelConfig& config);

/// Puts the plan's last tensor into the shard, as a plain one.
void add_decoded(Plan& plan, PlannedShard& shard, safetensors::DType plain);

/// Puts the stack into the shard, and its members at the end of the plan's tensors.
void add_stack(Plan& plan, PlannedShard& shard, const ExpertStack& stack, safetensors::DType plain);

}  // namespace nvfp4::checkpoint
