// MXFP4: E2M1 with a power of two (E8M0) for each 32 elements.
// Source: OCP Microscaling Formats (MX) Specification v1.0. The names are those of GPT-OSS,
// DeepSeek-V4 and compressed-tensors' "mxfp4-pack-quantized".
#include "checkpoint/formats/format.h"

namespace nvfp4::checkpoint {
namespace {

using safetensors::DType;

bool is_exponent(const StoredTensor& scales) {
  return scales && (scales.info->dtype == DType::f8_e8m0 || scales.info->dtype == DType::u8);
}

/// Reports whether the tensor has codes [experts, rows, blocks, 16] in bytes. Every tensor with a
/// name of GPT-OSS counts, whatever its form. Then a lost or broken part is a defect and never
/// copied as bytes.
bool claims_blocks(const TensorTable& table, const StoredTensor& codes, const std::string& module) {
  if (module.ends_with("_proj")) return true;
  return codes.info->dtype == DType::u8 && codes.info->shape.size() == 4 &&
         codes.info->shape[3] == 16 && is_exponent(table.find(module + "_scales"));
}

bool is_packed(const StoredTensor& codes) {
  const DType dtype = codes.info->dtype;
  return dtype == DType::u8 || dtype == DType::i8 || dtype == DType::f4;
}

bool claims_scale(const TensorTable& table, const StoredTensor& codes, const std::string& module) {
  return is_packed(codes) && is_exponent(table.find(module + ".scale"));
}

/// Reports whether the tensor has packed MXFP4 codes. A scale for each 16 codes is E5M3 of
/// AutoRound.
bool claims_packed(const TensorTable& table, const StoredTensor& codes, const std::string& module) {
  const StoredTensor scales = table.find(module + ".weight_scale");
  return is_packed(codes) && is_exponent(scales) && !table.find(module + ".weight_global_scale") &&
         (codes.info->shape.empty() || scales.info->shape.empty() ||
          codes.info->shape.back() % 8 != 0 ||
          codes.info->shape.back() / 8 != scales.info->shape.back());
}

}  // namespace

extern const CheckpointFormat kMxfp4;

namespace {

const WeightNames kGptOssNames = {.format = &kMxfp4,
                                  .encoding = Encoding::mxfp4,
                                  .codes = "_blocks",
                                  .scales = "_scales",
                                  .weight = {},
                                  .transposed_stacks = true,
                                  .claims = claims_blocks};
/// The names of DeepSeek-V4.
const WeightNames kShortNames = {.format = &kMxfp4,
                                 .encoding = Encoding::mxfp4,
                                 .codes = ".weight",
                                 .scales = ".scale",
                                 .is_native = true,
                                 .claims = claims_scale};
const WeightNames kPackedNames = {.format = &kMxfp4,
                                  .encoding = Encoding::mxfp4,
                                  .codes = ".weight_packed",
                                  .scales = ".weight_scale",
                                  .claims = claims_packed};

constexpr const WeightNames* kReads[] = {&kGptOssNames, &kShortNames, &kPackedNames};

}  // namespace

const CheckpointFormat kMxfp4 = {.name = "mxfp4", .reads = kReads};

}  // namespace nvfp4::checkpoint
