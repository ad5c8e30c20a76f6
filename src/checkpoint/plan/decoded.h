#pragma once

#include <map>
#include <memory>
#include <set>
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

/// The stack of each member.
using StackOf = std::map<const LogicalTensor*, std::shared_ptr<const ExpertStack>>;

/// Returns the stacks that have a quantized member. With `encoded`, returns the stacks, and those
/// of biases, that have no member in it. Throws FormatError if an expert is missing or has another
/// shape.
StackOf find_stacks(std::span<const LogicalTensor> tensors, const ModelConfig& config,
                    const std::set<const LogicalTensor*>* encoded = nullptr);

/// Adds the plan's last tensor to the shard, dequantized to `plain`.
void add_decoded(Plan& plan, PlannedShard& shard, safetensors::DType plain);

/// Reports whether a weight can be Q8_0: a matrix, or a stack of them if it is split. Biases
/// cannot.
bool fits_q8_0(const LogicalTensor& t, bool splits_stack);

/// Adds the plan's last tensor, a matrix, to the shard in Q8_0.
void add_q8_0(Plan& plan, PlannedShard& shard);

/// Reports whether the tensor has biases of the gates and ups of all experts of a layer.
bool is_bias_stack(std::string_view name);

/// Adds the plan's last tensor, a stack of experts, to the shard as single experts in `plain` or
/// Q8_0. The biases of gates and ups become two tensors.
void add_single_experts(Plan& plan, PlannedShard& shard, std::span<const LogicalTensor> tensors,
                        const ModelConfig& config, safetensors::DType plain, bool q8_0 = false);

/// Adds the stack to the shard, and its members to the plan's tensors.
void add_stack(Plan& plan, PlannedShard& shard, const ExpertStack& stack, safetensors::DType plain);

}  // namespace nvfp4::checkpoint
