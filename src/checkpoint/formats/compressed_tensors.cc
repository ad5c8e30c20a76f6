// The format "nvfp4-pack-quantized" of compressed-tensors.
// Source: github.com/vllm-project/compressed-tensors, compressors/nvfp4, quant_scheme.py.
#include <fmt/format.h>

#include "checkpoint/formats/excludes.h"
#include "checkpoint/formats/format.h"

namespace nvfp4::checkpoint {
namespace {

std::vector<OutputTensor> fp8(const Fp8Module& module, std::int64_t rows, std::int64_t cols) {
  const auto blocks = [](std::int64_t n) { return (n + kFp8Block - 1) / kFp8Block; };
  switch (module.scales) {
    case Fp8Module::Scales::channel:
      return fp8_tensors(module.name, rows, cols, {rows, 1}, false);
    case Fp8Module::Scales::block:
      return fp8_tensors(module.name, rows, cols, {blocks(rows), blocks(cols)}, false);
    case Fp8Module::Scales::mx:
      return mxfp8_tensors(module.name, rows, cols);
    case Fp8Module::Scales::tensor:
      break;
  }
  return fp8_tensors(module.name, rows, cols, {1}, module.input);
}

Json numbers(int bits, const char* strategy, Json dynamic, Json group_size = nullptr) {
  const bool block = std::string_view(strategy) == "block";
  return {{"num_bits", bits},
          {"type", "float"},
          {"symmetric", true},
          {"group_size", std::move(group_size)},
          {"strategy", strategy},
          {"block_structure", block ? Json({128, 128}) : Json(nullptr)},
          {"dynamic", std::move(dynamic)},
          {"actorder", nullptr},
          {"scale_dtype", bits == 4 ? Json("torch.float8_e4m3fn") : Json(nullptr)},
          {"zp_dtype", nullptr},
          {"observer", "static_minmax"},
          {"observer_kwargs", Json::object()}};
}

Json mxfp8(Json dynamic) {
  Json json = numbers(8, "group", std::move(dynamic), kMxfp8Block);
  json["scale_dtype"] = json["zp_dtype"] = "torch.uint8";
  return json;
}

Json nvfp4(Json dynamic) { return numbers(4, "tensor_group", std::move(dynamic), 16); }

Json group(Json targets, Json weights, Json inputs, Json format) {
  return {{"targets", std::move(targets)},
          {"weights", std::move(weights)},
          {"input_activations", std::move(inputs)},
          {"output_activations", nullptr},
          {"format", std::move(format)}};
}

/// Returns the group of the FP8 modules with one kind of scales.
Json fp8_group(const ConfigFacts& facts, Fp8Module::Scales scales) {
  using Scales = Fp8Module::Scales;
  Json targets = Json::array();
  bool measured = true;
  for (const Fp8Module& module : facts.fp8) {
    if (module.scales != scales) continue;
    targets.push_back(module.name);
    measured &= module.input;
  }
  if (targets.empty()) return nullptr;
  switch (scales) {
    case Scales::block:
      return group(std::move(targets), numbers(8, "block", false), numbers(8, "group", true, 128),
                   "float-quantized");
    case Scales::channel:
      return group(std::move(targets), numbers(8, "channel", false), numbers(8, "token", true),
                   "float-quantized");
    case Scales::mx:
      return group(std::move(targets), mxfp8(false), mxfp8(true), "mxfp8-quantized");
    case Scales::tensor:
      break;
  }
  return group(std::move(targets), numbers(8, "tensor", false),
               numbers(8, measured ? "tensor" : "token", !measured), "float-quantized");
}

Json quantization_config(const ConfigFacts& facts) {
  const bool mixed = !facts.fp8.empty();
  Json groups;
  const auto add_nvfp4 = [&](Scheme scheme, Json targets) {
    groups[fmt::format("group_{}", groups.size())] =
        group(std::move(targets), nvfp4(false), scheme == Scheme::w4a4 ? nvfp4("local") : Json(),
              mixed ? Json("nvfp4-pack-quantized") : Json());
  };
  // Names take precedence over "Linear", so the other groups get their own modules.
  const Scheme most =
      2 * facts.weights_only.size() > facts.quantized.size() ? Scheme::w4a16 : facts.scheme;
  add_nvfp4(most, {"Linear"});
  if (!facts.weights_only.empty()) {
    Json others = Json::array();
    for (const std::string& module : facts.quantized)
      if (facts.scheme_of(module) != most) others.push_back(module);
    add_nvfp4(most == Scheme::w4a4 ? Scheme::w4a16 : Scheme::w4a4, std::move(others));
  }
  for (const auto scales : {Fp8Module::Scales::tensor, Fp8Module::Scales::channel,
                            Fp8Module::Scales::block, Fp8Module::Scales::mx})
    if (Json fp8 = fp8_group(facts, scales); !fp8.is_null())
      groups[fmt::format("group_{}", groups.size())] = std::move(fp8);
  const Json cache = {{"num_bits", 8},        {"type", "float"},  {"strategy", "tensor"},
                      {"symmetric", true},    {"dynamic", false}, {"observer", "static_minmax"},
                      {"group_size", nullptr}};
  return {{"config_groups", std::move(groups)},
          {"quant_method", "compressed-tensors"},
          {"kv_cache_scheme", facts.kv_cache == "FP8" ? cache : Json()},
          {"format", mixed ? "mixed-precision" : "nvfp4-pack-quantized"},
          {"quantization_status", "compressed"},
          {"global_compression_ratio", nullptr},
          {"ignore", exclude_expressions(facts)}};
}

/// Reports whether the one block_structure that the format declares fits the weight.
bool keeps_fp8(const LogicalTensor& t) {
  return t.block_rows == 1 || has_one_scale(t) || (t.block_rows == 128 && t.block_cols == 128);
}

bool declares_kv_cache(std::string_view type) { return type == "FP8"; }

/// Reports whether the weight is NVFP4. Other formats pack integers or MXFP4 under the same name.
bool claims(const TensorTable& table, const StoredTensor& codes, const std::string& module) {
  const StoredTensor scales = table.find(module + ".weight_scale");
  return table.find(module + ".weight_global_scale") ||
         (codes.info->dtype == safetensors::DType::u8 && scales &&
          scales.info->dtype == safetensors::DType::f8_e4m3);
}

}  // namespace

extern const CheckpointFormat kCompressedTensors;

namespace {

const WeightNames kNames = {.format = &kCompressedTensors,
                            .codes = ".weight_packed",
                            .scales = ".weight_scale",
                            .global = ".weight_global_scale",
                            .input = ".input_global_scale",
                            .divisors = true,
                            .claims = claims};

constexpr const WeightNames* kReads[] = {&kNames};
constexpr CacheScaleNames kCacheScales = {".k_scale", ".v_scale", true};
constexpr std::string_view kLoaders[] = {
    "vllm", "sglang", "transformers", "transformers+nvfp4", "diffusers", "llama.cpp"};

}  // namespace

const CheckpointFormat kCompressedTensors = {.name = "compressed-tensors",
                                             .reads = kReads,
                                             .loaders = kLoaders,
                                             .is_repaired = true,
                                             .names = &kNames,
                                             .fp8_tensors = fp8,
                                             .quantization_config = quantization_config,
                                             .hf_quant_config = nullptr,
                                             .keeps_fp8 = keeps_fp8,
                                             .declares_kv_cache = declares_kv_cache,
                                             .cache_scales = &kCacheScales};

}  // namespace nvfp4::checkpoint
