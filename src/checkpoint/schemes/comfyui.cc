// ComfyUI and Black Forest Labs (FLUX.2): the even column in the high nibble, scales in the tiles
// that cuBLAS reads.
// Source: github.com/Comfy-Org/comfy-kitchen, backends/eager, hi_first; ComfyUI, comfy/ops.py.
#include "checkpoint/schemes/scheme.h"

namespace nvfp4::checkpoint {
namespace {

bool claims(const TensorTable& table, const StoredTensor& codes, const std::string& module) {
  return kModelOptNames.claims(table, codes, module) &&
         (table.find(module + ".comfy_quant") ||
          codes.file->metadata().count("_quantization_metadata") != 0);
}

}  // namespace

const WeightNames kComfyUiNames = {
    .scheme = "comfyui",
    .codes = ".weight",
    .scales = ".weight_scale",
    .global = ".weight_scale_2",
    .input = ".input_scale",
    .arrangement = {.high_nibble_first = true, .scales = ScaleLayout::tiled_128x4},
    .marker = ".comfy_quant",
    .claims = claims};

}  // namespace nvfp4::checkpoint
