// NVFP4 of AMD Quark: the tensors of ModelOpt, one of them with another name.
// Source: github.com/vllm-project/vllm, quantization/quark, quark_nvfp4.py.
#include "checkpoint/formats/format.h"

namespace nvfp4::checkpoint {
namespace {

/// Reports whether the weight is Quark's. Without an input scale and with FP32 global scales it
/// equals ModelOpt's.
bool claims(const TensorTable& table, const StoredTensor& codes, const std::string& module) {
  if (!kModelOptNames.claims(table, codes, module)) return false;
  const StoredTensor global = table.find(module + ".weight_scale_2");
  return table.find(module + ".input_scale_2") ||
         (global && global.info->dtype == safetensors::DType::bf16 &&
          !table.find(module + ".input_scale"));
}

}  // namespace

extern const CheckpointFormat kQuark;

namespace {

const WeightNames kNames = {.format = &kQuark,
                            .codes = ".weight",
                            .scales = ".weight_scale",
                            .global = ".weight_scale_2",
                            .input = ".input_scale_2",
                            .bf16_globals = true,
                            .claims = claims};

constexpr const WeightNames* kReads[] = {&kNames};
constexpr std::string_view kLoaders[] = {"vllm"};

}  // namespace

const CheckpointFormat kQuark = {.name = "quark", .reads = kReads, .loaders = kLoaders};

}  // namespace nvfp4::checkpoint
