// INT8 weights: integers times one scale for the matrix or for each row.
// Source: github.com/vllm-project/compressed-tensors, compressors/naive_quantized
// ("int-quantized").
#include "checkpoint/formats/format.h"

namespace nvfp4::checkpoint {
namespace {

/// Reports whether these are integers with scales. ComfyUI's may be those of a rotated matrix.
bool claims(const TensorTable& table, const StoredTensor& codes, const std::string& module) {
  return codes.info->dtype == safetensors::DType::i8 && codes.info->shape.size() == 2 &&
         table.find(module + ".weight_scale") && !table.find(module + ".comfy_quant");
}

}  // namespace

extern const CheckpointFormat kInt8;

namespace {

const WeightNames kNames = {.format = &kInt8,
                            .encoding = Encoding::int8,
                            .codes = ".weight",
                            .scales = ".weight_scale",
                            .input = ".input_scale",
                            .claims = claims};

constexpr const WeightNames* kReads[] = {&kNames};

}  // namespace

const CheckpointFormat kInt8 = {.name = "int8", .reads = kReads};

}  // namespace nvfp4::checkpoint
