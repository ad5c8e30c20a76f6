// ComfyUI and Black Forest Labs (FLUX.2). The even column is in the high nibble, and scales are in
// cuBLAS's tiles.
// Source: github.com/Comfy-Org/comfy-kitchen, backends/eager, hi_first; ComfyUI, comfy/ops.py and
// comfy/quant_ops.py.
#include "checkpoint/formats/format.h"

namespace nvfp4::checkpoint {
namespace {

/// Content of the marker tensor that ComfyUI reads beside a weight: JSON as bytes.
constexpr std::string_view kMarker = R"({"format": "nvfp4"})";
/// Metadata key of JSON that says how each weight of the file is stored. Copied, it would give
/// those forms to weights that are written anew.
constexpr const char* kMetadata = "_quantization_metadata";
constexpr std::string_view kFp8Marker = R"({"format": "float8_e4m3fn"})";

bool claims(const TensorTable& table, const StoredTensor& codes, const std::string& module) {
  return kModelOptNames.claims(table, codes, module) &&
         (table.find(module + ".comfy_quant") || codes.file->metadata().count(kMetadata) != 0);
}

}  // namespace

extern const CheckpointFormat kComfyUi;

namespace {

const WeightNames kNames = {
    .format = &kComfyUi,
    .codes = ".weight",
    .scales = ".weight_scale",
    .global = ".weight_scale_2",
    .input = ".input_scale",
    .arrangement = {.high_nibble_first = true, .scales = ScaleLayout::tiled_128x4},
    .marker = ".comfy_quant",
    .claims = claims};

constexpr const WeightNames* kReads[] = {&kNames};

std::vector<OutputTensor> fp8(const Fp8Module& module, std::int64_t rows, std::int64_t cols) {
  if (module.scales != Fp8Module::Scales::tensor) return {};
  std::vector<OutputTensor> out = fp8_tensors(module.name, rows, cols, {}, module.input);
  out.push_back({Role::marker,
                 {module.name + std::string(kNames.marker),
                  safetensors::DType::u8,
                  {static_cast<std::int64_t>(kFp8Marker.size())}}});
  return out;
}

bool own_metadata(std::string_view key, std::string_view /*value*/) { return key == kMetadata; }

}  // namespace

/// The format has no configuration: each weight has a marker tensor.
const CheckpointFormat kComfyUi = {.name = "comfyui",
                                   .reads = kReads,
                                   .own_metadata = own_metadata,
                                   .names = &kNames,
                                   .note = "one file in OUTPUT",
                                   .fp8_tensors = fp8,
                                   .keeps_fp8 = has_one_scale,
                                   .marker_text = kMarker,
                                   .fp8_marker_text = kFp8Marker,
                                   .single_file = "model.safetensors"};

}  // namespace nvfp4::checkpoint
