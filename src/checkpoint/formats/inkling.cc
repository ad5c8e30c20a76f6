// NVFP4 of Inkling: stacks of experts. Inkling 2 has a largest magnitude instead of a global scale.
// Sources: github.com/huggingface/transformers, core_model_loading.py,
// Inkling2LoopDequantizeExperts, and conversion_mapping.py; github.com/vllm-project/vllm,
// models/inkling/nvidia/model.py and moe.py; github.com/sgl-project/sglang, srt/models/inkling.py.
#include "checkpoint/formats/format.h"

namespace nvfp4::checkpoint {

extern const CheckpointFormat kInkling;

namespace {

constexpr std::string_view kAmax = "_amax", kDenominator = "_outer_scale_denominator";

bool is_stack(const StoredTensor& codes, const std::string& module) {
  return codes.info->dtype == safetensors::DType::u8 && codes.info->shape.size() == 3 &&
         module.ends_with("_weight");
}

/// Reports whether the tensor has such codes, complete or not. MXFP8 of this model has no amax.
bool claims(const TensorTable& table, const StoredTensor& codes, const std::string& module) {
  return is_stack(codes, module) && (table.find(module + std::string(kAmax)) ||
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

constexpr std::string_view kScale = ".scale", kScale2 = ".scale2";

bool claims_first(const TensorTable& table, const StoredTensor& codes, const std::string& module) {
  return is_stack(codes, module) &&
         (table.find(module + std::string(kScale)) || table.find(module + std::string(kScale2)));
}

/// The names of the first Inkling.
constexpr WeightNames kFirstNames = {.format = &kInkling,
                                     .codes = "",
                                     .scales = kScale,
                                     .global = kScale2,
                                     .input = ".input_amax",
                                     .shape = ".original_shape",
                                     .weight = "",
                                     .claims = claims_first};
constexpr const WeightNames* kReads[] = {&kNames, &kFirstNames};
/// The loaders of the first Inkling. No engine has an architecture of Inkling 2.
constexpr std::string_view kLoaders[] = {"vllm", "sglang"};
bool is_declared(std::string_view method) { return method == "inkling" || method == "modelopt"; }

}  // namespace

const CheckpointFormat kInkling = {
    .name = "inkling", .reads = kReads, .is_method = is_declared, .loaders = kLoaders};

}  // namespace nvfp4::checkpoint
