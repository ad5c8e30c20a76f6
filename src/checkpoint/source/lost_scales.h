#pragma once

#include <set>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/formats/declared.h"
#include "checkpoint/formats/logical_tensor.h"

namespace nvfp4::checkpoint {

/// Returns FP8 weights without a scale, and weights of DeepSeek-V4 without MXFP4 exponents. They
/// are faults if other weights have scales, or if one of `declared` says that weights are FP8.
/// Otherwise FP8 codes are the values themselves.
std::vector<Defect> lost_fp8_scales(std::span<const LogicalTensor> tensors,
                                    std::span<const Declared* const> declared);

/// Throws FormatError for the first weight of lost_fp8_scales(). Its codes would be read as values,
/// silently wrong. Modules in `unknown` forms may have scales of their own and are skipped.
void require_fp8_scales(std::span<const LogicalTensor> tensors, std::span<const Defect> unknown,
                        std::span<const Declared* const> declared);

/// Returns scales that only quantized weights have, without codes beside them: the weight may be
/// lost. Modules in `unknown` forms may have scales of their own and are skipped.
std::vector<Defect> orphan_scales(std::span<const LogicalTensor> tensors,
                                  const std::set<std::string>& unknown);

}  // namespace nvfp4::checkpoint
