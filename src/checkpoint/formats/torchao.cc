// TorchAO's NVFP4Tensor in safetensors files. The parts of "module.weight" are
// "module._weight_qdata" and so on. A metadata entry with the weight's name holds JSON about the
// layout of the parts. The format is only read, because the other contents of that entry are
// TorchAO's own.
// Source: github.com/pytorch/ao, prototype/safetensors, prototype/mx_formats/nvfp4_tensor.py.
#include <fmt/format.h>

#include "checkpoint/formats/format.h"
#include "checkpoint/io/json_text.h"

namespace nvfp4::checkpoint {

extern const CheckpointFormat kTorchAo;

namespace {

constexpr std::string_view kScale = "._weight_scale", kGlobal = "._weight_per_tensor_scale";

/// Returns the entry of one tensor, or null if `text` is not one.
Json entry(const std::string& text) {
  Json json = parse_json_or_null<Json>(text);
  return json.is_object() && json.contains("_type") ? json : Json();
}

/// Reports whether the scales are in tiles. Without an entry, their shape decides.
bool is_tiled(const StoredTensor& codes, const StoredTensor& scales, const std::string& module) {
  const auto& metadata = codes.file->metadata();
  if (const auto found = metadata.find(module + ".weight"); found != metadata.end()) {
    const Json json = entry(found->second);
    if (json.is_object() && json.contains("_data") && json["_data"].is_object())
      return json["_data"].value("is_swizzled_scales", Json()) == true;
  }
  const auto& shape = codes.info->shape;
  return scales.info->shape != std::vector<std::int64_t>{shape[0], shape[1] * 2 / kBlock};
}

/// Reports whether the tensor has codes with these parts. Stacks are excluded: their tiles extend
/// across experts, as in no other format.
template <bool tiled, bool global>
bool claims(const TensorTable& table, const StoredTensor& codes, const std::string& module) {
  const StoredTensor scales = table.find(fmt::format("{}{}", module, kScale));
  return scales && scales.info->dtype == safetensors::DType::f8_e4m3 &&
         codes.info->dtype == safetensors::DType::u8 && codes.info->shape.size() == 2 &&
         static_cast<bool>(table.find(fmt::format("{}{}", module, kGlobal))) == global &&
         is_tiled(codes, scales, module) == tiled;
}

template <bool tiled, bool global>
constexpr WeightNames names() {
  return {.format = &kTorchAo,
          .codes = "._weight_qdata",
          .scales = kScale,
          .global = global ? kGlobal : "",
          .input = "._weight_act_per_tensor_scale",
          .arrangement = {.scales = tiled ? ScaleLayout::tiled_128x4 : ScaleLayout::linear},
          .claims = claims<tiled, global>};
}

constexpr WeightNames kLinear = names<false, true>(), kTiled = names<true, true>(),
                      kLinearAlone = names<false, false>(), kTiledAlone = names<true, false>();
constexpr const WeightNames* kReads[] = {&kLinear, &kTiled, &kLinearAlone, &kTiledAlone};

bool own_metadata(std::string_view key, std::string_view value) {
  return key == "tensor_names" || entry(std::string(value)).is_object();
}

}  // namespace

const CheckpointFormat kTorchAo = {
    .name = "torchao", .reads = kReads, .own_metadata = own_metadata, .global_is_optional = true};

}  // namespace nvfp4::checkpoint
