#pragma once

#include <set>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/formats/declared.h"
#include "checkpoint/formats/logical_tensor.h"

namespace nvfp4::checkpoint {

/// FP8 weights without a scale, and DeepSeek-V4's MXFP4 without exponents, in a model whose other
/// weights have one or which one of `declared` says to be FP8. Where nobody says so, FP8 values
/// stand for themselves.
std::vector<Defect> lost_fp8_scales(std::span<const LogicalTensor> tensors,
                                    std::span<const Declared> declared);

/// FP8 codes that are taken for values would be wrong without a word: throws FormatError for the
/// first of them, but for modules of `unknown` forms, which may have scales of their own.
void require_fp8_scales(std::span<const LogicalTensor> tensors, std::span<const Defect> unknown,
                        std::span<const Declared> declared);

/// Scales that only quantized weights have, and no codes beside them: the weight may be lost.
/// Modules of `unknown` forms may have scales of their own.
std::vector<Defect> orphan_scales(std::span<const LogicalTensor> tensors,
                                  const std::set<std::string>& unknown);

}  // namespace nvfp4::checkpoint
