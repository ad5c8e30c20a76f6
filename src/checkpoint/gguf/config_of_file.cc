// Creates config.json from the keys and tensors of a file that another program wrote.
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <numbers>
#include <set>

#include "checkpoint/gguf/config.h"
#include "checkpoint/io/json_text.h"
#include "core/printable.h"

namespace nvfp4::gguf {
namespace {

/// Modules of a layer that have biases together, and the key of config.json that declares them. The
/// key is empty if transformers always builds the biases.
struct BiasRule {
  std::string_view model_type, flag;
  std::vector<std::string_view> modules;
};

const std::vector<BiasRule>& bias_rules() {
  static const std::vector<std::string_view> qkv = {"attn_q", "attn_k", "attn_v"},
                                             attention = {"attn_q", "attn_k", "attn_v",
                                                          "attn_output"};
  static const std::vector<BiasRule> rules = {
      {"llama", "attention_bias", attention},
      {"llama", "mlp_bias", {"ffn_gate", "ffn_up", "ffn_down"}},
      {"granite", "attention_bias", attention},
      {"granite", "mlp_bias", {"ffn_gate", "ffn_up", "ffn_down"}},
      {"qwen2", "", qkv},
      {"qwen2_moe", "qkv_bias", qkv},
      {"qwen3", "attention_bias", attention},
      {"qwen3_moe", "attention_bias", attention},
  };
  return rules;
}

/// Returns the number that prints like the FP32 value: 1e-05 instead of 9.999999747378752e-06.
double short_number(double value) {
  return std::strtod(fmt::format("{}", static_cast<float>(value)).c_str(), nullptr);
}

class ConfigMaker {
 public:
  ConfigMaker(const File& file, const Architecture& architecture)
      : file_(file), architecture_(architecture), prefix_(std::string(architecture.name) + ".") {}

  FileConfig run() {
    config_ = {{"architectures", {architecture_.class_name}},
               {"model_type", architecture_.model_type},
               {"torch_dtype", "bfloat16"}};
    if (!architecture_.foreign) {
      fail("config.json of {} models is not made of keys", architecture_.model_type);
      return {checkpoint::dump_pretty(config_) + "\n", std::move(obstacle_)};
    }
    require_positive("attention.layer_norm_rms_epsilon");
    add_sizes();
    if (architecture_.latent)
      add_latent_heads();
    else
      add_heads();
    if (architecture_.experts)
      add_experts();
    else
      for (const char* key : {"expert_count", "expert_used_count"}) require_one_of(key, {0});
    for (const NumberKey& number : architecture_.numbers)
      if (copy(std::string(number.model).c_str(), number.file).is_null())
        fail("has no key '{}{}'", prefix_, number.file);
    add_rope();
    add_biases();
    config_["tie_word_embeddings"] = file_.find("output.weight") == nullptr;
    for (const std::string_view key : {"rope.scaling.finetuned", "tensor_data_layout"}) find(key);
    for (const Entry& entry : file_.header().entries)
      if (entry.key.starts_with(prefix_) && !used_.contains(entry.key))
        fail("key '{}' = {}: config.json of {} models has no place for it", printable(entry.key),
             checkpoint::dump_line(json_of(entry.value)), architecture_.model_type);
    return {checkpoint::dump_pretty(config_) + "\n", std::move(obstacle_)};
  }

 private:
  /// Records the first obstacle.
  template <class... Values>
  void fail(fmt::format_string<Values...> text, Values&&... values) {
    if (!obstacle_.empty()) return;
    obstacle_ = fmt::format("{}: {}; take the original model instead",
                            printable(file_.path().string(), 4096),
                            fmt::format(text, std::forward<Values>(values)...));
  }

  /// Returns the value of a key and marks the key as used. Null if the file has no such key.
  const Value* find(std::string_view key) {
    const Value* value = file_.header().find(prefix_ + std::string(key));
    if (value != nullptr) used_.insert(prefix_ + std::string(key));
    return value;
  }

  /// Returns a number, or null if the file has no such key.
  Json number(std::string_view key) {
    const Value* value = find(key);
    if (value == nullptr) return nullptr;
    Json json = json_of(*value);
    constexpr double kMost = 0xFFFFFFFF;  // limit of integers: sums do not overflow
    if (json.is_number() && std::isfinite(json.get<double>()) && json.get<double>() >= 0 &&
        (json.is_number_float() || json.get<double>() <= kMost))
      return json;
    fail("key '{}{}' = {}, must be a number of 32 bits, at least 0", prefix_, key,
         checkpoint::dump_line(json));
    return nullptr;
  }

  /// Requires that a number that the file has is not 0.
  void require_positive(std::string_view key) {
    if (number(key) == 0) fail("key '{}{}' = 0, must be greater", prefix_, key);
  }

  /// Copies a number. Without the key it writes `otherwise` unless that is null.
  Json copy(const char* name, std::string_view key, Json otherwise = nullptr) {
    Json value = number(key);
    if (value.is_null()) value = std::move(otherwise);
    if (!value.is_null()) config_[name] = value;
    return value;
  }

  /// Requires that a key is absent or has one of these values, because config.json cannot express
  /// others.
  void require_one_of(std::string_view key, const std::vector<Json>& values) {
    const Value* value = find(key);
    if (value == nullptr) return;
    const Json json = json_of(*value);
    if (std::ranges::find(values, json) != values.end()) return;
    std::vector<std::string> texts;
    for (const Json& v : values) texts.push_back(checkpoint::dump_line(v));
    fail("key '{}{}' = {}, must be {} in {} models", prefix_, key, checkpoint::dump_line(json),
         fmt::join(texts, " or "), architecture_.model_type);
  }

  std::int64_t integer_at(const char* name) const { return integer_of(config_, {name}, 0); }

  void add_sizes() {
    copy("num_hidden_layers", "block_count");
    copy("max_position_embeddings", "context_length");
    copy("hidden_size", "embedding_length");
    copy("intermediate_size", "feed_forward_length");
    copy("rms_norm_eps", "attention.layer_norm_rms_epsilon");
    const TensorInfo* embeddings = file_.find("token_embd.weight");
    copy("vocab_size", "vocab_size",
         embeddings == nullptr || embeddings->shape.empty() ? Json() : Json(embeddings->shape[0]));
    copy("num_attention_heads", "attention.head_count");
    copy("num_key_value_heads", "attention.head_count_kv",
         config_.value("num_attention_heads", Json()));
  }

  void add_heads() {
    const std::int64_t heads = integer_at("num_attention_heads");
    const Json otherwise = heads > 0 ? Json(integer_at("hidden_size") / heads) : Json();
    const Json head_dim = copy("head_dim", "attention.key_length", otherwise);
    for (const char* key : {"attention.value_length", "rope.dimension_count"})
      require_one_of(key, {head_dim});
  }

  void add_latent_heads() {
    const Json latent = copy("kv_lora_rank", "attention.kv_lora_rank");
    copy("v_head_dim", "attention.value_length_mla");
    copy("qk_rope_head_dim", "rope.dimension_count");
    copy("qk_nope_head_dim", "attention.key_length_mla");
    config_["qk_nope_head_dim"] = integer_at("qk_nope_head_dim") - integer_at("qk_rope_head_dim");
    config_["q_lora_rank"] = number("attention.q_lora_rank");  // null: the model has no low-rank q
    config_["num_key_value_heads"] = config_.value("num_attention_heads", Json());
    require_one_of("attention.head_count_kv", {1});
    require_one_of("attention.value_length", {latent});
    require_one_of("attention.key_length",
                   {integer_at("kv_lora_rank") + integer_at("qk_rope_head_dim")});
  }

  void add_experts() {
    const bool mixtral = architecture_.model_type == "mixtral";
    copy(mixtral                ? "num_local_experts"
         : architecture_.latent ? "n_routed_experts"
                                : "num_experts",
         "expert_count");
    copy("num_experts_per_tok", "expert_used_count");
    const Json all = config_.value("intermediate_size", Json());
    if (mixtral) {
      require_one_of("expert_feed_forward_length", {all});
    } else {
      const std::int64_t used = integer_at("num_experts_per_tok");
      copy("moe_intermediate_size", "expert_feed_forward_length",
           used > 0 ? Json(integer_at("intermediate_size") / used) : Json());
    }
    if (architecture_.latent) return add_latent_experts();
    if (architecture_.model_type == "qwen2_moe")
      copy("shared_expert_intermediate_size", "expert_shared_feed_forward_length", all);
    // llama.cpp has no key for this. Its graph decides.
    if (architecture_.normalizes) config_["norm_topk_prob"] = *architecture_.normalizes;
    require_one_of("expert_weights_norm", {architecture_.normalizes.value_or(true)});
    require_one_of("expert_weights_scale", {1.0, 0.0});
    require_one_of("expert_gating_func", {1});
    for (const char* key : {"expert_group_count", "expert_group_used_count"})
      require_one_of(key, {0, 1});
  }

  /// Adds the entries of DeepSeek-V2 and V3. Their defaults differ from those of llama.cpp.
  void add_latent_experts() {
    copy("first_k_dense_replace", "leading_dense_block_count", 0);
    copy("n_shared_experts", "expert_shared_count", 0);
    copy("routed_scaling_factor", "expert_weights_scale", 1.0);
    if (config_["routed_scaling_factor"] == 0) config_["routed_scaling_factor"] = 1.0;
    copy("n_group", "expert_group_count", 1);
    copy("topk_group", "expert_group_used_count", 1);
    require_one_of("expert_gating_func", {architecture_.sigmoid ? 2 : 1});
    config_["scoring_func"] = architecture_.sigmoid ? "sigmoid" : "softmax";
    config_["topk_method"] = architecture_.sigmoid       ? "noaux_tc"
                             : integer_at("n_group") > 1 ? "group_limited_greedy"
                                                         : "greedy";
    const Value* norm = find("expert_weights_norm");
    const bool normalizes = norm != nullptr && json_of(*norm) == true;
    config_["norm_topk_prob"] = normalizes;
    if (normalizes && !architecture_.sigmoid) require_one_of("expert_weights_norm", {false});
  }

  void add_rope() {
    require_positive("rope.freq_base");
    copy("rope_theta", "rope.freq_base", 10000.0);
    Json factor = number("rope.scaling.factor");
    if (const Json old = number("rope.scale_linear"); factor.is_null()) factor = old;
    if (factor == 0) factor = 1.0;
    const Value* named = find("rope.scaling.type");
    const Json type = named != nullptr                  ? json_of(*named)
                      : factor.is_null() || factor == 1 ? Json("none")
                                                        : Json("linear");
    const Json original = number("rope.scaling.original_context_length");
    const bool yarn = type == "yarn";
    require_one_of("rope.scaling.attn_factor", {1.0});
    require_one_of("rope.scaling.yarn_ext_factor", {yarn ? 1.0 : 0.0, -1.0});
    if (!yarn) require_one_of("rope.scaling.yarn_attn_factor", {1.0});
    if (!yarn || !architecture_.latent) require_one_of("rope.scaling.yarn_log_multiplier", {0.0});
    if (type != "none" && type != "linear" && !yarn)
      fail("key '{}rope.scaling.type' = {}, must be none, linear or yarn", prefix_,
           checkpoint::dump_line(type));
    Json scaling = {{"rope_type", type}, {"factor", factor.is_null() ? Json(1.0) : factor}};
    if (yarn)
      scaling["original_max_position_embeddings"] =
          original.is_null() ? config_.value("max_position_embeddings", Json()) : original;
    for (const auto& [name, key] : {std::pair{"attention_factor", "rope.scaling.yarn_attn_factor"},
                                    std::pair{"beta_fast", "rope.scaling.yarn_beta_fast"},
                                    std::pair{"beta_slow", "rope.scaling.yarn_beta_slow"}})
      if (const Json value = number(key); yarn && !value.is_null()) scaling[name] = value;
    if (const Json log = number("rope.scaling.yarn_log_multiplier"); yarn && log.is_number())
      for (const char* name : {"mscale", "mscale_all_dim"})
        scaling[name] = short_number(10 * log.get<double>());
    if (yarn || (type == "linear" && factor != 1 && !factor.is_null()))
      config_["rope_scaling"] = scaling;
    if (const TensorInfo* factors = file_.find("rope_freqs.weight")) add_llama3(*factors);
  }

  /// Adds Llama 3's scaling of rotary frequencies, computed from its factors. Only the ratios of
  /// the two bounds and the original length matter; published models have the bounds 1 and 4.
  void add_llama3(const TensorInfo& tensor) {
    constexpr std::int64_t kMostFactors = 32768;
    std::vector<float> factors;
    if (tensor.type->id == kF32 && tensor.elements() > 0 && tensor.elements() <= kMostFactors) {
      factors.resize(static_cast<std::size_t>(tensor.elements()));
      file_.read(tensor, 0, std::as_writable_bytes(std::span(factors)));
    }
    const double factor = factors.empty() ? 0 : *std::ranges::max_element(factors);
    const double theta = config_["rope_theta"].get<double>();
    double original = 8192;
    for (std::size_t i = 0; i < factors.size(); ++i) {
      if (factors[i] <= 1.001f || factors[i] >= 0.999 * factor) continue;
      const double wavelength =
          2 * std::numbers::pi * std::pow(theta, static_cast<double>(i) / factors.size());
      const double smooth = (1 / static_cast<double>(factors[i]) - 1 / factor) / (1 - 1 / factor);
      original = std::round(wavelength * (1 + 3 * smooth));
      break;
    }
    Json config = config_;
    config["rope_scaling"] = {{"rope_type", "llama3"},
                              {"factor", short_number(factor)},
                              {"low_freq_factor", 1.0},
                              {"high_freq_factor", 4.0},
                              {"original_max_position_embeddings",
                               original < 1e12 ? static_cast<std::int64_t>(original) : 0}};
    const bool whole = integer_at("head_dim") == 2 * static_cast<std::int64_t>(factors.size());
    const auto is_near = [](float a, float b) { return std::abs(a - b) <= 1e-4f * std::abs(b); };
    if (factors.empty() || !whole || config_.contains("rope_scaling") ||
        architecture_.name != "llama" ||
        !std::ranges::equal(factors, rope_factors(config), is_near))
      return fail(
          "tensor 'rope_freqs.weight': {} factors up to {}, must be those of Llama 3's rule",
          tensor.elements(), factor);
    if (factor != 1) config_ = std::move(config);
  }

  void add_biases() {
    /// Number of layers in which a module has a bias.
    std::map<std::string, std::int64_t, std::less<>> layers;
    for (const TensorInfo& t : file_.header().tensors) {
      if (!t.name.ends_with(".bias") || t.name.ends_with(".exp_probs_b.bias")) continue;
      const std::string module = t.name.substr(0, t.name.size() - 5);
      const std::string last = module.substr(module.rfind('.') + 1);
      const bool known = std::ranges::any_of(bias_rules(), [&](const BiasRule& rule) {
        return rule.model_type == architecture_.model_type && module.starts_with("blk.") &&
               std::ranges::find(rule.modules, last) != rule.modules.end();
      });
      if (!known)
        fail("tensor '{}': {} models have no such bias", printable(t.name),
             architecture_.model_type);
      ++layers[last];
    }
    for (const BiasRule& rule : bias_rules()) {
      if (rule.model_type != architecture_.model_type) continue;
      const auto all_have = [&](std::int64_t count) {
        return std::ranges::all_of(rule.modules, [&](std::string_view module) {
          const auto it = layers.find(module);
          return (it == layers.end() ? 0 : it->second) == count;
        });
      };
      const bool all = all_have(integer_at("num_hidden_layers"));
      if (!all && (rule.flag.empty() || !all_have(0)))
        fail("biases of {}: {} models have all of them in each layer{}",
             fmt::join(rule.modules, ", "), architecture_.model_type,
             rule.flag.empty() ? "" : ", or none");
      if (!rule.flag.empty()) config_[std::string(rule.flag)] = all;
    }
  }

  const File& file_;
  const Architecture& architecture_;
  std::string prefix_;
  std::set<std::string> used_;  ///< keys
  Json config_;
  std::string obstacle_;
};

}  // namespace

Json json_of(const Value& value) {
  if (const auto* number = std::get_if<std::uint64_t>(&value.value)) return *number;
  if (const auto* number = std::get_if<std::int64_t>(&value.value)) return *number;
  if (const auto* flag = std::get_if<bool>(&value.value)) return *flag;
  if (const auto* text = std::get_if<std::string>(&value.value)) return printable(*text);
  if (const auto* real = std::get_if<double>(&value.value))
    return value.type == ValueType::f32 ? short_number(*real) : *real;
  return "an array";
}

FileConfig config_of(const File& file, const Architecture& architecture) {
  if (const std::string* text = file.header().text(kConfigKey)) return {*text, {}};
  return ConfigMaker(file, architecture).run();
}

}  // namespace nvfp4::gguf
