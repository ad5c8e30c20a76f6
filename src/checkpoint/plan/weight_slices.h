#pragma once

#include "checkpoint/families/experts.h"
#include "checkpoint/formats/format.h"
#include "checkpoint/formats/logical_tensor.h"

namespace nvfp4::checkpoint {

struct Plan;
struct Unit;

/// All rows of all matrices of a weight.
WeightSlice whole_weight(const LogicalTensor& t);

/// Each matrix of a stack [E, N, K] as [K, N]: transformers stores the experts of GPT-OSS as
/// [experts, in, out], and packs [experts, out, in].
std::vector<WeightSlice> transposed_matrices(const LogicalTensor& t);

/// Whether the format has the stacks of the model's family. Those of NVFP4 that have a global scale
/// for each expert are taken apart.
bool keeps_stacks(const CheckpointFormat& format, const ModelConfig& config,
                  const LogicalTensor& t);

/// Places a unit of the plan's last tensor in the stack that it stays a part of. The tensors of the
/// stack, for its first unit; the others share them.
std::vector<OutputTensor> stack_outputs(const Plan& plan, Scheme scheme, const LogicalTensor& t,
                                        Unit& unit);

}  // namespace nvfp4::checkpoint
