// TorchAO's NVFP4Tensor in safetensors files. The parts of "module.weight" are
// "module._weight_qdata" and so on, those of a stack "experts.w1" are "experts._w1_qdata". A
// metadata entry with the weight's name holds JSON about the layout of the parts. The format is
// only read, because the other contents of that entry are TorchAO's own. Source:
// github.com/pytorch/ao, prototype/safetensors, prototype/mx_formats/nvfp4_tensor.py.
#include <fmt/format.h>

#include "checkpoint/base/json_members.h"
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

/// Reports whether the scales are in tiles. Without an entry, their shape decides. Older versions
/// have an underscore before the member's name.
bool is_tiled(const StoredTensor& codes, const StoredTensor& scales, const std::string& weight) {
  const auto& metadata = codes.file->metadata();
  if (const auto found = metadata.find(weight); found != metadata.end()) {
    const Json json = entry(found->second);
    const Json& data = object_of(json, "_data");
    for (const char* key : {"is_swizzled_scales", "_is_swizzled_scales"})
      if (data.contains(key)) return data[key] == true;
  }
  std::vector<std::int64_t> shape = codes.info->shape;
  shape.back() = shape.back() * 2 / kBlock;
  return scales.info->shape != shape;
}

/// Returns the name of a stack in the model: "a.experts._w1" is "a.experts.w1".
std::string model_module(const std::string& module) {
  const std::size_t at = module.rfind('.') + 1;
  return module.substr(0, at) + module.substr(at + 1);
}

/// Reports whether the tensor has the codes of a stack [experts, N, K]. Tiles that extend across
/// experts, as in no other format, are not read.
template <bool tiled, bool global>
bool claims_stack(const TensorTable& table, const StoredTensor& codes, const std::string& module) {
  const StoredTensor scales = table.find(module + "_scale");
  return module[module.rfind('.') + 1] == '_' && scales &&
         scales.info->dtype == safetensors::DType::f8_e4m3 &&
         codes.info->dtype == safetensors::DType::u8 && codes.info->shape.size() == 3 &&
         (!tiled || codes.info->shape[1] % 128 == 0) &&
         static_cast<bool>(table.find(module + "_per_tensor_scale")) == global &&
         is_tiled(codes, scales, model_module(module)) == tiled;
}

/// Reports whether the tensor has the codes of a matrix with these parts.
template <bool tiled, bool global>
bool claims(const TensorTable& table, const StoredTensor& codes, const std::string& module) {
  const StoredTensor scales = table.find(fmt::format("{}{}", module, kScale));
  return scales && scales.info->dtype == safetensors::DType::f8_e4m3 &&
         codes.info->dtype == safetensors::DType::u8 && codes.info->shape.size() == 2 &&
         static_cast<bool>(table.find(fmt::format("{}{}", module, kGlobal))) == global &&
         is_tiled(codes, scales, module + ".weight") == tiled;
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

template <bool tiled, bool global>
constexpr WeightNames stack_names() {
  return {.format = &kTorchAo,
          .codes = "_qdata",
          .scales = "_scale",
          .global = global ? "_per_tensor_scale" : "",
          .input = "_act_per_tensor_scale",
          .arrangement = {.scales = tiled ? ScaleLayout::tiled_128x4 : ScaleLayout::linear},
          .weight = "",
          .claims = claims_stack<tiled, global>,
          .model_module = model_module};
}

constexpr WeightNames kLinear = names<false, true>(), kTiled = names<true, true>(),
                      kLinearAlone = names<false, false>(), kTiledAlone = names<true, false>(),
                      kStack = stack_names<false, true>(), kTiledStack = stack_names<true, true>(),
                      kStackAlone = stack_names<false, false>(),
                      kTiledStackAlone = stack_names<true, false>();
constexpr const WeightNames* kReads[] = {&kLinear, &kTiled,      &kLinearAlone, &kTiledAlone,
                                         &kStack,  &kTiledStack, &kStackAlone,  &kTiledStackAlone};

bool own_metadata(std::string_view key, std::string_view value) {
  return key == "tensor_names" || entry(std::string(value)).is_object();
}

}  // namespace

const CheckpointFormat kTorchAo = {
    .name = "torchao", .reads = kReads, .own_metadata = own_metadata, .global_is_optional = true};

}  // namespace nvfp4::checkpoint
