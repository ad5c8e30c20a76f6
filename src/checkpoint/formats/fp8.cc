// FP8 and INT8 weights. DeepSeek-V3 stores one scale for each 128 x 128 block. ModelOpt and Mistral
// store one for the matrix. compressed-tensors stores one for the matrix or for each row. All
// scales multiply, "inv" or not. For MXFP8, ModelOpt and compressed-tensors store a power of two
// for each 32 columns. INT8 is integers times one scale for the matrix or for each row. Sources:
// github.com/deepseek-ai/DeepSeek-V3, inference/fp8_cast_bf16.py;
// github.com/vllm-project/compressed-tensors, compressors/naive_quantized ("int-quantized").
#include "checkpoint/formats/format.h"

namespace nvfp4::checkpoint {
namespace {

constexpr char kInverseScales[] = ".weight_scale_inv", kScales[] = ".weight_scale",
               kShortScales[] = ".scale", kMistralScales[] = ".qscale_weight",
               kInverseStackScales[] = "_scale_inv", kStackScales[] = "_scale";

/// Reports whether these are E4M3 codes with so many dimensions that have scales with the suffix.
template <const auto& scales, std::size_t dimensions = 2>
bool claims(const TensorTable& table, const StoredTensor& codes, const std::string& module) {
  return codes.info->dtype == safetensors::DType::f8_e4m3 &&
         codes.info->shape.size() == dimensions && table.find(module + scales);
}

}  // namespace

Fp8Module fp8_module(const LogicalTensor& t) {
  using Scales = Fp8Module::Scales;
  return {t.module(),
          t.is_mxfp8()                                           ? Scales::mx
          : t.scales.info->shape.size() == 2 && t.block_rows > 1 ? Scales::block
          : t.block_rows == 1                                    ? Scales::channel
                                                                 : Scales::tensor,
          static_cast<bool>(t.input)};
}

bool has_one_scale(const LogicalTensor& t) {
  return t.shape.size() == 2 && !t.is_mxfp8() && t.block_rows == t.rows() &&
         t.block_cols == t.cols();
}

std::vector<OutputTensor> fp8_tensors(const std::string& module, std::int64_t rows,
                                      std::int64_t cols, std::vector<std::int64_t> scales,
                                      bool input) {
  using safetensors::DType;
  std::vector<OutputTensor> out = {
      {Role::codes, {module + ".weight", DType::f8_e4m3, {rows, cols}}},
      {Role::scales, {module + ".weight_scale", DType::f32, scales}}};
  if (input)
    out.push_back({Role::input_global, {module + ".input_scale", DType::f32, std::move(scales)}});
  return out;
}

std::vector<OutputTensor> mxfp8_tensors(const std::string& module, std::int64_t rows,
                                        std::int64_t cols) {
  using safetensors::DType;
  return {{Role::codes, {module + ".weight", DType::f8_e4m3, {rows, cols}}},
          {Role::scales, {module + ".weight_scale", DType::u8, {rows, cols / kMxfp8Block}}}};
}

extern const CheckpointFormat kFp8;

namespace {

const WeightNames kInverseNames = {.format = &kFp8,
                                   .encoding = Encoding::fp8,
                                   .codes = ".weight",
                                   .scales = kInverseScales,
                                   .input = ".input_scale",
                                   .claims = claims<kInverseScales>};
const WeightNames kNames = {.format = &kFp8,
                            .encoding = Encoding::fp8,
                            .codes = ".weight",
                            .scales = kScales,
                            .input = ".input_scale",
                            .marker = ".comfy_quant",
                            .claims = claims<kScales>};
/// The names of DeepSeek-V4.
const WeightNames kShortNames = {.format = &kFp8,
                                 .encoding = Encoding::fp8,
                                 .codes = ".weight",
                                 .scales = kShortScales,
                                 .is_native = true,
                                 .claims = claims<kShortScales>};

/// Stacks of experts [E, N, K], as transformers names them.
template <const auto& scales>
constexpr WeightNames stack_names() {
  return {.format = &kFp8,
          .encoding = Encoding::fp8,
          .codes = "",
          .scales = scales,
          .input = "_activation_scale",
          .weight = "",
          .stacks = true,
          .claims = claims<scales, 3>};
}
constexpr WeightNames kInverseStackNames = stack_names<kInverseStackScales>(),
                      kStackNames = stack_names<kStackScales>();

/// The names of Mistral. Source: github.com/vllm-project/vllm, models/llama.py, mistral_mapping.
const WeightNames kMistralNames = {.format = &kFp8,
                                   .encoding = Encoding::fp8,
                                   .codes = ".weight",
                                   .scales = kMistralScales,
                                   .input = ".qscale_act",
                                   .claims = claims<kMistralScales>};

constexpr const WeightNames* kReads[] = {
    &kInverseNames, &kNames, &kShortNames, &kMistralNames, &kInverseStackNames, &kStackNames};

}  // namespace

const CheckpointFormat kFp8 = {.name = "fp8", .reads = kReads};

extern const CheckpointFormat kInt8;

namespace {

/// Reports whether these are integers with scales. ComfyUI's may be those of a rotated matrix.
bool claims_int8(const TensorTable& table, const StoredTensor& codes, const std::string& module) {
  return codes.info->dtype == safetensors::DType::i8 && codes.info->shape.size() == 2 &&
         table.find(module + ".weight_scale") && !table.find(module + ".comfy_quant");
}

const WeightNames kInt8Names = {.format = &kInt8,
                                .encoding = Encoding::int8,
                                .codes = ".weight",
                                .scales = ".weight_scale",
                                .input = ".input_scale",
                                .claims = claims_int8};
constexpr const WeightNames* kInt8Reads[] = {&kInt8Names};

}  // namespace

const CheckpointFormat kInt8 = {.name = "int8", .reads = kInt8Reads};

}  // namespace nvfp4::checkpoint
