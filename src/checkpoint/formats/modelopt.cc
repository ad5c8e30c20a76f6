// The unified Hugging Face export of NVIDIA ModelOpt.
// Source: github.com/NVIDIA/Model-Optimizer, modelopt/torch/export, convert_hf_config.py.
#include <fmt/format.h>

#include "checkpoint/families/experts.h"
#include "checkpoint/formats/excludes.h"
#include "checkpoint/formats/format.h"

namespace nvfp4::checkpoint {
namespace {

/// Returns the tensors of an FP8 weight. Loaders require the input scale of FP8 with one scale;
/// with a scale for each row they quantize each token. Block scales are not written because their
/// tensor names were not verified.
std::vector<OutputTensor> fp8(const Fp8Module& module, std::int64_t rows, std::int64_t cols) {
  if (module.scales == Fp8Module::Scales::block) return {};
  if (module.scales == Fp8Module::Scales::mx) return mxfp8_tensors(module.name, rows, cols);
  const bool channel = module.scales == Fp8Module::Scales::channel;
  return fp8_tensors(module.name, rows, cols,
                     channel ? std::vector{rows} : std::vector<std::int64_t>(), !channel);
}

const char* algorithm(Scheme scheme) { return scheme == Scheme::w4a4 ? "NVFP4" : "W4A16_NVFP4"; }

/// Returns the producer entry. Loaders recognize the format by this name. The version is that of
/// the layout written here.
Json producer() { return {{"name", "modelopt"}, {"version", "0.41.0"}}; }

/// Returns the numbers of a group with one scale for `group_size` elements. 0: one scale for all.
Json numbers(int bits, int group_size) {
  Json json = {{"dynamic", false}, {"num_bits", bits}, {"type", "float"}};
  if (group_size > 0) json["group_size"] = group_size;
  return json;
}

Json group(int bits, int group_size, bool activations, Json targets) {
  Json json = Json::object();
  if (activations) json["input_activations"] = numbers(bits, group_size);
  json["weights"] = numbers(bits, group_size);
  json["targets"] = std::move(targets);
  return json;
}

Json nvfp4_group(bool activations, Json targets) {
  return group(4, kBlock, activations, std::move(targets));
}

const char* fp8_algorithm(const Fp8Module& module) {
  return module.scales == Fp8Module::Scales::channel ? "FP8_PER_CHANNEL_PER_TOKEN"
         : module.scales == Fp8Module::Scales::mx    ? "MXFP8"
                                                     : "FP8";
}

/// Returns the name of a module in lists: for a stack, the module that contains it.
std::string listed(const std::string& module) {
  const std::string layer = expert_layer_of(module);
  return layer.empty() || without_expert_number(module) != module ? module : layer;
}

/// Returns an entry for each layer, which a checkpoint of two forms needs.
Json quantized_layers(const ConfigFacts& facts) {
  Json layers = Json::object();
  for (const std::string& module : facts.quantized)
    layers[listed(module)] = {{"quant_algo", algorithm(facts.scheme_of(module))},
                              {"group_size", 16}};
  for (const Fp8Module& module : facts.fp8)
    layers[module.name] = module.scales == Fp8Module::Scales::mx
                              ? Json{{"quant_algo", "MXFP8"}, {"group_size", kMxfp8Block}}
                              : Json{{"quant_algo", fp8_algorithm(module)}};
  return layers;
}

const char* all_algorithm(const ConfigFacts& facts) {
  return facts.is_mixed() ? "MIXED_PRECISION" : algorithm(facts.scheme);
}

/// Returns the configuration of DeepSeek-V4: new experts beside copied FP8 attention, head and
/// multi-token prediction.
/// Source: github.com/NVIDIA/Model-Optimizer, examples/deepseek/deepseek_v4.
Json native_config(const ConfigFacts& facts) {
  Json json = *facts.native;
  Json layers = Json::object();
  for (const std::string& module : facts.quantized)
    layers[expert_layer_of(module)] = {{"quant_algo", algorithm(facts.scheme)}, {"group_size", 16}};
  Json targets = Json::array();
  for (const auto& [layer, unused] : layers.items()) targets.push_back(layer + "*");
  json["moe_quant_algo"] = "NVFP4";
  json["quant_algo"] = "MIXED_PRECISION";
  json["group_size"] = 16;
  json["config_groups"] = {
      {"group_0", nvfp4_group(facts.scheme == Scheme::w4a4, std::move(targets))}};
  json["quantized_layers"] = std::move(layers);
  json["ignore"] = {"*.attn.*", "*.ffn.shared_experts.*", "head", "mtp.*"};
  json["producer"] = producer();
  return json;
}

Json quantization_config(const ConfigFacts& facts) {
  if (facts.native != nullptr) return native_config(facts);
  Json groups;
  const auto add = [&](Json group) {
    if (!group["targets"].empty())
      groups[fmt::format("group_{}", groups.size())] = std::move(group);
  };
  if (!facts.is_mixed()) {
    add(nvfp4_group(facts.scheme == Scheme::w4a4, {"Linear"}));
  } else {
    for (const Scheme scheme : {Scheme::w4a4, Scheme::w4a16}) {
      Json four = Json::array();
      for (const std::string& module : facts.quantized)
        if (facts.scheme_of(module) == scheme && (four.empty() || four.back() != listed(module)))
          four.push_back(listed(module));
      add(nvfp4_group(scheme == Scheme::w4a4, std::move(four)));
    }
    using Scales = Fp8Module::Scales;
    for (const Scales scales : {Scales::tensor, Scales::channel, Scales::mx}) {
      Json targets = Json::array();
      for (const Fp8Module& module : facts.fp8)
        if (module.scales == scales) targets.push_back(module.name);
      Json eight = group(8, scales == Scales::mx ? kMxfp8Block : 0, true, std::move(targets));
      if (scales == Scales::channel) eight["weights"]["strategy"] = "channel";
      add(std::move(eight));
    }
  }
  ExcludeList excludes = exclude_globs(facts);
  if (facts.warnings != nullptr) *facts.warnings = std::move(excludes.conflicts);
  Json json = {{"config_groups", std::move(groups)},
               {"ignore", std::move(excludes.entries)},
               {"quant_algo", all_algorithm(facts)},
               {"producer", producer()},
               {"quant_method", "modelopt"}};
  if (facts.is_mixed()) json["quantized_layers"] = quantized_layers(facts);
  if (facts.kv_cache == "FP8")
    json["kv_cache_scheme"] = {{"dynamic", false}, {"num_bits", 8}, {"type", "float"}};
  return json;
}

Json hf_quant_config(const ConfigFacts& facts, const Json& config) {
  if (facts.native != nullptr) return nullptr;
  Json json = {
      {"quant_algo", all_algorithm(facts)},
      {"kv_cache_quant_algo", facts.kv_cache.empty() ? Json(nullptr) : Json(facts.kv_cache)},
      {"group_size", 16},
      {"exclude_modules", config.at("ignore")}};
  if (facts.is_mixed()) json["quantized_layers"] = quantized_layers(facts);
  return {{"producer", producer()}, {"quantization", std::move(json)}};
}

/// Reports whether FP8 is copied. Block scales are not, because their tensor names were not
/// verified.
bool keeps_fp8(const LogicalTensor& t) { return t.block_rows == 1 || has_one_scale(t); }

bool declares_kv_cache(std::string_view /*type*/) { return true; }

bool claims(const TensorTable& table, const StoredTensor& codes, const std::string& module) {
  if (codes.info->dtype != safetensors::DType::u8) return false;
  const StoredTensor scales = table.find(module + ".weight_scale");
  return (scales && scales.info->dtype == safetensors::DType::f8_e4m3) ||
         table.find(module + ".weight_scale_2");
}

/// Reports whether the tensor has the codes of a stack. Experts that the model itself stacks (Llama
/// 4, GPT-OSS) stay stacks [in, out].
bool claims_stack(const TensorTable& table, const StoredTensor& codes, const std::string& module) {
  return codes.info->dtype == safetensors::DType::u8 && codes.info->shape.size() == 3 &&
         (table.find(module + "_weight_scale") || table.find(module + "_weight_scale_2"));
}

}  // namespace

extern const CheckpointFormat kModelOpt;

const WeightNames kModelOptNames = {.format = &kModelOpt,
                                    .codes = ".weight",
                                    .scales = ".weight_scale",
                                    .global = ".weight_scale_2",
                                    .input = ".input_scale",
                                    .claims = claims};

namespace {

const WeightNames kStackNames = {.format = &kModelOpt,
                                 .codes = "",
                                 .scales = "_weight_scale",
                                 .global = "_weight_scale_2",
                                 .input = "_input_scale",
                                 .weight = "",
                                 .stacks = true,
                                 .claims = claims_stack};

constexpr const WeightNames* kReads[] = {&kModelOptNames, &kStackNames};
constexpr CacheScaleNames kCacheScales = {".k_proj.k_scale", ".v_proj.v_scale"};
constexpr std::string_view kLoaders[] = {
    "vllm", "sglang", "tensorrt-llm", "transformers+nvfp4", "diffusers", "llama.cpp"};

bool is_method(std::string_view method) {
  return method.starts_with("modelopt") || method == "fp8" || method == "nvfp4";
}

}  // namespace

const CheckpointFormat kModelOpt = {.name = "modelopt",
                                    .reads = kReads,
                                    .is_method = is_method,
                                    .loaders = kLoaders,
                                    .is_repaired = true,
                                    .names = &kModelOptNames,
                                    .stack_names = &kStackNames,
                                    .fp8_tensors = fp8,
                                    .quantization_config = quantization_config,
                                    .hf_quant_config = hf_quant_config,
                                    .keeps_native = true,
                                    .keeps_fp8 = keeps_fp8,
                                    .declares_kv_cache = declares_kv_cache,
                                    .cache_scales = &kCacheScales};

}  // namespace nvfp4::checkpoint
