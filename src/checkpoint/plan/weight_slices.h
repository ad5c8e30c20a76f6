#pragma once

#include "checkpoint/families/experts.h"
#include "checkpoint/formats/logical_tensor.h"

namespace nvfp4::checkpoint {

/// All rows of all matrices of a weight.
WeightSlice whole_weight(const LogicalTensor& t);

/// Each matrix of a stack [E, N, K] as [K, N]: transformers stores the experts of GPT-OSS as
/// [experts, in, out], and packs [experts, out, in].
std::vector<WeightSlice> transposed_matrices(const LogicalTensor& t);

}  // namespace nvfp4::checkpoint
