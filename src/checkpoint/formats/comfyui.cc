// ComfyUI and Black Forest Labs (FLUX.2): the even column in the high nibble, scales in the tiles
// that cuBLAS reads.
// Source: github.com/Comfy-Org/comfy-kitchen, backends/eager, hi_first; ComfyUI, comfy/ops.py and
// comfy/quant_ops.py.
#include "checkpoint/formats/format.h"

namespace nvfp4::checkpoint {
namespace {

bool claims(const TensorTable& table, const StoredTensor& codes, const std::string& module) {
  return kModelOptNames.claims(table, codes, module) &&
         (table.find(module + ".comfy_quant") ||
          codes.file->metadata().count(kComfyUiMetadata) != 0);
}

/// What ComfyUI looks for beside a weight: JSON, as bytes.
constexpr std::string_view kMarker = R"({"format": "nvfp4"})";
constexpr std::string_view kFp8Marker = R"({"format": "float8_e4m3fn"})";

std::vector<OutputTensor> tensors(Scheme scheme, const std::string& module, std::int64_t rows,
                                  std::int64_t cols) {
  std::vector<OutputTensor> out = nvfp4_tensors(kComfyUiNames, scheme, module, rows, cols);
  out.push_back({Role::marker,
                 {module + std::string(kComfyUiNames.marker),
                  safetensors::DType::u8,
                  {static_cast<std::int64_t>(kMarker.size())}}});
  return out;
}

float stored_global(const GlobalScale& scale) { return scale.multiplier; }

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

/// Each weight says for itself that it is quantized: there is no configuration.
const CheckpointFormat kComfyUi = {.name = "comfyui",
                                   .names = &kComfyUiNames,
                                   .tensors = tensors,
                                   .stored_global = stored_global,
                                   .quantization_config = nullptr,
                                   .hf_quant_config = nullptr,
                                   .keeps_fp8 = has_one_scale,
                                   .marker_text = kMarker,
                                   .fp8_marker_text = kFp8Marker,
                                   .single_file = "model.safetensors"};

}  // namespace nvfp4::checkpoint
