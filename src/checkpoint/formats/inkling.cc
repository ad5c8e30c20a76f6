// NVFP4 of Inkling 2: stacks of experts, with a largest magnitude instead of a global scale.
// Source: github.com/huggingface/transformers, core_model_loading.py,
// Inkling2LoopDequantizeExperts, and conversion_mapping.py.
#include "checkpoint/formats/format.h"

namespace nvfp4::checkpoint {

extern const CheckpointFormat kInkling;

namespace {

constexpr std::string_view kAmax = "_amax", kDenominator = "_outer_scale_denominator";

/// Reports whether the tensor has such codes, complete or not. MXFP8 of this model has no amax.
bool claims(const TensorTable& table, const StoredTensor& codes, const std::string& module) {
  return codes.info->dtype == safetensors::DType::u8 && codes.info->shape.size() == 3 &&
         module.ends_with("_weight") &&
         (table.find(module + std::string(kAmax)) ||
          table.find(module + std::string(kDenominator)));
}

/// The global scale of an expert is the quotient of two tensors.
constexpr WeightNames kNames = {.format = &kInkling,
                                .codes = "",
                                .scales = "_scale",
                                .global = kAmax,
                                .denominator = kDenominator,
                                .weight = "",
                                .bf16_globals = true,
                                .claims = claims};
constexpr const WeightNames* kReads[] = {&kNames};

}  // namespace

const CheckpointFormat kInkling = {.name = "inkling", .reads = kReads};

}  // namespace nvfp4::checkpoint
