// compressed-tensors' "nvfp4-pack-quantized".
// Source: github.com/vllm-project/compressed-tensors, compressors/nvfp4, quant_scheme.py.
#include "checkpoint/schemes/excludes.h"
#include "checkpoint/schemes/scheme.h"

namespace nvfp4::checkpoint {
namespace {

std::vector<OutputTensor> tensors(Scheme scheme, const std::string& module, std::int64_t rows,
                                  std::int64_t cols) {
  using enum safetensors::DType;
  std::vector<OutputTensor> out = {
      {Role::codes, {module + ".weight_packed", u8, {rows, cols / 2}}},
      {Role::scales, {module + ".weight_scale", f8_e4m3, {rows, cols / kBlock}}},
      {Role::weight_global, {module + ".weight_global_scale", f32, {1}}}};
  if (scheme == Scheme::nvfp4)
    out.push_back({Role::input_global, {module + ".input_global_scale", f32, {1}}});
  return out;
}

/// All kept experts of a layer, as an expression.
std::string experts_expression(const std::string& experts) {
  std::string escaped;
  for (const char c : experts) {
    if (c == '.') escaped += '\\';
    escaped += c;
  }
  return "re:^" + escaped + "\\..*";
}

Json numbers(Json dynamic) {
  return {{"num_bits", 4},
          {"type", "float"},
          {"symmetric", true},
          {"group_size", 16},
          {"strategy", "tensor_group"},
          {"block_structure", nullptr},
          {"dynamic", std::move(dynamic)},
          {"actorder", nullptr},
          {"scale_dtype", "torch.float8_e4m3fn"},
          {"zp_dtype", nullptr},
          {"observer", "static_minmax"},
          {"observer_kwargs", Json::object()}};
}

Json quantization_config(const ConfigFacts& facts) {
  const Json group = {
      {"targets", {"Linear"}},
      {"weights", numbers(false)},
      {"input_activations", facts.scheme == Scheme::nvfp4 ? numbers("local") : Json(nullptr)},
      {"output_activations", nullptr},
      {"format", nullptr}};
  return {{"config_groups", {{"group_0", group}}},
          {"quant_method", "compressed-tensors"},
          {"kv_cache_scheme", nullptr},
          {"format", "nvfp4-pack-quantized"},
          {"quantization_status", "compressed"},
          {"global_compression_ratio", nullptr},
          {"ignore", linear_excludes(facts, experts_expression)}};
}

float stored_global(const GlobalScale& scale) { return scale.divisor; }

/// Other formats pack integers or MXFP4 under the same name.
bool claims(const TensorTable& table, const StoredTensor& codes, const std::string& module) {
  const StoredTensor scales = table.find(module + ".weight_scale");
  return table.find(module + ".weight_global_scale") ||
         (codes.info->dtype == safetensors::DType::u8 && scales &&
          scales.info->dtype == safetensors::DType::f8_e4m3);
}

}  // namespace

const WeightNames kCompressedTensorsNames = {.scheme = "compressed-tensors",
                                             .codes = ".weight_packed",
                                             .scales = ".weight_scale",
                                             .global = ".weight_global_scale",
                                             .input = ".input_global_scale",
                                             .divisors = true,
                                             .claims = claims};

const CheckpointFormat kCompressedTensors = {"compressed-tensors", tensors, stored_global,
                                             quantization_config, nullptr};

}  // namespace nvfp4::checkpoint
