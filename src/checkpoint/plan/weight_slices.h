#pragma once

#include "checkpoint/families/experts.h"
#include "checkpoint/formats/format.h"
#include "checkpoint/formats/logical_tensor.h"

namespace nvfp4::checkpoint {

/// Returns a slice of all rows of all matrices of a weight.
WeightSlice whole_weight(const LogicalTensor& t);

/// Returns each matrix of a stack [E, N, K] as [K, N]. The stacks of GPT-OSS in transformers are
/// [experts, in, out], and their packed form is [experts, out, in].
std::vector<WeightSlice> transposed_matrices(const LogicalTensor& t);

/// Reports whether the format keeps the stacks of the model's family. NVFP4 stacks with a global
/// scale for each expert are split.
bool keeps_stacks(const CheckpointFormat& format, const ModelConfig& config,
                  const LogicalTensor& t);

}  // namespace nvfp4::checkpoint
