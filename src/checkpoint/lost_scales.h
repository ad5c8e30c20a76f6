#pragma once

#include <span>
#include <vector>

#include "checkpoint/declared.h"
#include "checkpoint/logical_tensor.h"

namespace nvfp4::checkpoint {

/// FP8 weights without a scale, in a model whose other weights have one or which one of `declared`
/// says to be FP8. Where nobody says so, FP8 values stand for themselves.
std::vector<Defect> lost_fp8_scales(std::span<const LogicalTensor> tensors,
                                    std::span<const Declared> declared);

}  // namespace nvfp4::checkpoint
