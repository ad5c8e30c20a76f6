// NVIDIA ModelOpt's unified Hugging Face export.
// Source: github.com/NVIDIA/Model-Optimizer, modelopt/torch/export, convert_hf_config.py.
#include "checkpoint/schemes/excludes.h"
#include "checkpoint/schemes/scheme.h"

namespace nvfp4::checkpoint {
namespace {

std::vector<OutputTensor> tensors(Scheme scheme, const std::string& module, std::int64_t rows,
                                  std::int64_t cols) {
  using enum safetensors::DType;
  std::vector<OutputTensor> out = {
      {Role::codes, {module + ".weight", u8, {rows, cols / 2}}},
      {Role::scales, {module + ".weight_scale", f8_e4m3, {rows, cols / kBlock}}},
      {Role::weight_global, {module + ".weight_scale_2", f32, {}}}};
  if (scheme == Scheme::nvfp4)
    out.push_back({Role::input_global, {module + ".input_scale", f32, {}}});
  return out;
}

const char* algorithm(Scheme scheme) { return scheme == Scheme::nvfp4 ? "NVFP4" : "W4A16_NVFP4"; }

/// Loaders recognize the format by this name; the version is that of the layout written here.
Json producer() { return {{"name", "modelopt"}, {"version", "0.41.0"}}; }

std::vector<std::string> excludes(const ConfigFacts& facts) {
  std::vector<std::string> entries =
      linear_excludes(facts, [](const std::string& experts) { return experts + "*"; });
  for (std::string& entry : mtp_head_excludes(facts)) entries.push_back(std::move(entry));
  for (std::string& entry : other_excludes(facts)) entries.push_back(std::move(entry));
  return entries;
}

Json quantization_config(const ConfigFacts& facts) {
  const Json numbers = {{"dynamic", false}, {"num_bits", 4}, {"type", "float"}, {"group_size", 16}};
  Json group = Json::object();
  if (facts.scheme == Scheme::nvfp4) group["input_activations"] = numbers;
  group["weights"] = numbers;
  group["targets"] = {"Linear"};
  return {{"config_groups", {{"group_0", group}}},
          {"ignore", excludes(facts)},
          {"quant_algo", algorithm(facts.scheme)},
          {"producer", producer()},
          {"quant_method", "modelopt"}};
}

Json hf_quant_config(const ConfigFacts& facts) {
  return {{"producer", producer()},
          {"quantization",
           {{"quant_algo", algorithm(facts.scheme)},
            {"kv_cache_quant_algo", nullptr},
            {"group_size", 16},
            {"exclude_modules", excludes(facts)}}}};
}

float stored_global(const GlobalScale& scale) { return scale.multiplier; }

bool claims(const TensorTable& table, const StoredTensor& codes, const std::string& module) {
  const StoredTensor scales = table.find(module + ".weight_scale");
  return codes.info->dtype == safetensors::DType::u8 &&
         ((scales && scales.info->dtype == safetensors::DType::f8_e4m3) ||
          table.find(module + ".weight_scale_2"));
}

}  // namespace

const WeightNames kModelOptNames = {.scheme = "modelopt",
                                    .codes = ".weight",
                                    .scales = ".weight_scale",
                                    .global = ".weight_scale_2",
                                    .input = ".input_scale",
                                    .claims = claims};

const CheckpointFormat kModelOpt = {"modelopt", tensors, stored_global, quantization_config,
                                    hf_quant_config};

}  // namespace nvfp4::checkpoint
