#include "checkpoint/gguf/config.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "checkpoint/io/json_text.h"
#include "core/printable.h"
#include "core/require.h"

namespace nvfp4::gguf {
namespace {

/// Values of expert_gating_func.
constexpr std::int64_t kSoftmax = 1, kSigmoid = 2;

void add_rope(Entries& out, const Json& config, const Architecture& architecture,
              const std::string& file) {
  const Json rope = rope_of(config);
  const std::string type = rope_type(rope);
  if (scales_rope_itself(architecture, type)) return;
  out.add("rope.freq_base", new_f32(rope_theta(config)));
  if (type == "linear" || type == "yarn") {
    out.add("rope.scaling.type", new_text(type));
    out.add("rope.scaling.factor", new_f32(positive_of(rope, "factor", 1)));
  }
  if (type == "yarn") {
    out.u32("rope.scaling.original_context_length",
            integer_of(rope, {"original_max_position_embeddings"},
                       integer_of(config, {"max_position_embeddings"}, 0)));
    for (const auto& [name, key] :
         {std::pair{"extrapolation_factor", "rope.scaling.yarn_ext_factor"},
          std::pair{"attention_factor", "rope.scaling.yarn_attn_factor"},
          std::pair{"beta_fast", "rope.scaling.yarn_beta_fast"},
          std::pair{"beta_slow", "rope.scaling.yarn_beta_slow"}})
      if (value_of(rope, {name}) != nullptr) out.add(key, new_f32(number_of(rope, name, 0)));
  }
  require<UnsupportedError>(
      type == "default" || type == "linear" || type == "yarn" || type == "llama3",
      "{}: rotary embeddings of type '{}', must be default, linear, yarn or llama3", file,
      printable(type));
}

void add_experts(Entries& out, const Json& config, const Architecture& architecture,
                 const std::string& file) {
  if (!architecture.experts) return;
  out.needed("expert_count", {"num_local_experts", "num_experts", "n_routed_experts"});
  out.needed("expert_used_count", {"num_experts_per_tok", "moe_topk", "top_k_experts"});
  out.optional("expert_feed_forward_length", {"moe_intermediate_size"});
  out.optional("expert_shared_feed_forward_length", {"shared_expert_intermediate_size"});
  out.optional("expert_group_count", {"n_group"});
  out.optional("expert_group_used_count", {"topk_group"});
  const Json* score = value_of(config, {"scoring_func"});
  const bool sigmoid = score == nullptr ? architecture.sigmoid : *score == "sigmoid";
  require<UnsupportedError>(score == nullptr || sigmoid || *score == "softmax",
                            "{}: scoring_func = {}, must be sigmoid or softmax", file,
                            score == nullptr ? "" : checkpoint::dump_line(*score));
  if (score != nullptr || architecture.routes || sigmoid)
    out.u32("expert_gating_func", sigmoid ? kSigmoid : kSoftmax);
  const Json* norm = value_of(config, {"norm_topk_prob"});
  const bool normalizes = norm == nullptr ? architecture.sigmoid : *norm == true;
  require<UnsupportedError>(architecture.normalizes.value_or(normalizes) == normalizes,
                            "{}: norm_topk_prob = {}, must be {}: llama.cpp computes {} so, "
                            "whatever the file says",
                            file, normalizes, !normalizes, architecture.name);
  if (!architecture.routes) return;
  out.u32("leading_dense_block_count", integer_of(config, {"first_k_dense_replace"}, 0));
  out.u32("expert_shared_count", integer_of(config, {"n_shared_experts"}, 0));
  out.add("expert_weights_scale", new_f32(number_of(config, "routed_scaling_factor", 1)));
  out.add("expert_weights_norm", new_bool(normalizes));
}

/// Throws UnsupportedError for settings that llama.cpp's graph of this model does not support.
void require_computed(const Json& config, const Architecture& architecture,
                      const std::string& file) {
  const Json* activation = value_of(config, {"hidden_activation", "hidden_act", "mlp_hidden_act"});
  require<UnsupportedError>(activation == nullptr || *activation == architecture.activation,
                            "{}: hidden_act = {}, must be {} for llama.cpp", file,
                            activation == nullptr ? "" : checkpoint::dump_line(*activation),
                            architecture.activation);
  if (architecture.rotary) return;
  for (const Json& at : {config, rope_of(config)})
    require<UnsupportedError>(number_of(at, "partial_rotary_factor", 1) == 1,
                              "{}: partial_rotary_factor = {}, must be 1 for llama.cpp", file,
                              number_of(at, "partial_rotary_factor", 1));
}

/// Returns the number of a head's elements that rotary embeddings cover.
std::int64_t rotary_dim(const Json& config, const Architecture& architecture,
                        const std::string& file) {
  const std::int64_t head = head_dim(config);
  const double share =
      number_of(rope_of(config), "partial_rotary_factor",
                number_of(config, "partial_rotary_factor", architecture.rotary.value_or(1)));
  require<FormatError>(share > 0 && share <= 1,
                       "{}: partial_rotary_factor = {}, must be above 0 and at most 1", file,
                       share);
  return integer_of(config, {"rotary_dim"},
                    static_cast<std::int64_t>(static_cast<double>(head) * share));
}

void add_heads(Entries& out, const Json& config, const Architecture& architecture,
               const std::string& file) {
  out.needed("attention.head_count", {"num_attention_heads"}, 1);
  if (!architecture.latent) {
    out.needed("attention.head_count_kv", {"num_key_value_heads", "num_attention_heads"});
    if (value_of(config, {"head_dim"}) != nullptr) {
      out.needed("attention.key_length", {"head_dim"});
      out.needed("attention.value_length", {"head_dim"});
    }
    out.u32("rope.dimension_count", rotary_dim(config, architecture, file));
    return;
  }
  // The graph moves kv_b_proj to queries and outputs, so all heads share one key and value.
  out.u32("attention.head_count_kv", 1);
  out.optional("attention.q_lora_rank", {"q_lora_rank"});
  out.needed("attention.kv_lora_rank", {"kv_lora_rank"}, 1);
  const auto size = [&](const char* name) {
    const std::int64_t value = integer_of(config, {name}, 0);
    require<FormatError>(value >= 0 && value <= 0xFFFFFFFF,
                         "{}: {} = {}, must be at least 0 and fit 32 bits", file, name, value);
    return value;
  };
  const std::int64_t rope = size("qk_rope_head_dim"), latent = size("kv_lora_rank");
  out.u32("attention.key_length", latent + rope);
  out.u32("attention.value_length", latent);
  out.u32("attention.key_length_mla", size("qk_nope_head_dim") + rope);
  out.needed("attention.value_length_mla", {"v_head_dim"});
  out.needed("rope.dimension_count", {"qk_rope_head_dim"});
  if (const double scale = number_of(rope_of(config), "mscale_all_dim", 0); scale != 0)
    out.add("rope.scaling.yarn_log_multiplier", new_f32(0.1 * scale));
}

}  // namespace

const Json* value_of(const Json& config, std::initializer_list<const char*> names) {
  for (const char* name : names)
    if (const auto it = config.find(name); it != config.end() && !it->is_null())
      return it->is_array() && !it->empty() && std::ranges::count(*it, it->front()) == ssize(*it)
                 ? &it->front()
                 : &*it;
  return nullptr;
}

Json rope_of(const Json& config) {
  Json all = Json::object();
  for (const char* name : {"rope_parameters", "rope_scaling"}) {
    const Json* rope = value_of(config, {name});
    if (rope == nullptr || !rope->is_object()) continue;
    if (const Json* full = value_of(*rope, {"full_attention"}); full != nullptr) rope = full;
    if (!rope->is_object()) continue;
    for (const auto& [key, value] : rope->items()) {
      Json& one = all[key == "type" ? "rope_type" : key];
      require<FormatError>(one.is_null() || value.is_null() || one == value,
                           "config.json: '{}' = {} in rope_scaling, {} in rope_parameters",
                           printable(key), checkpoint::dump_line(value),
                           checkpoint::dump_line(one));
      if (!value.is_null()) one = value;
    }
  }
  return all;
}

std::string rope_type(const Json& rope) {
  const Json* type = value_of(rope, {"rope_type"});
  return type != nullptr && type->is_string() ? type->get<std::string>() : "default";
}

double number_of(const Json& json, const char* name, double otherwise) {
  const Json* value = value_of(json, {name});
  return value != nullptr && value->is_number() ? value->get<double>() : otherwise;
}

double positive_of(const Json& json, const char* name, double otherwise) {
  const Json* value = value_of(json, {name});
  if (value == nullptr) return otherwise;
  const double number = value->is_number() ? value->get<double>() : 0;
  require<FormatError>(number > 0 && std::isfinite(number),
                       "config.json: {} = {}, must be a number greater than 0", name,
                       checkpoint::dump_line(*value));
  return number;
}

double rope_theta(const Json& config) {
  return positive_of(rope_of(config), "rope_theta", positive_of(config, "rope_theta", 10000.0));
}

std::int64_t head_dim(const Json& config) {
  const std::int64_t heads = integer_of(config, {"num_attention_heads"}, 1);
  return integer_of(config, {"head_dim"},
                    integer_of(config, {"hidden_size"}, 0) / std::max<std::int64_t>(heads, 1));
}

std::int64_t integer_of(const Json& config, std::initializer_list<const char*> names,
                        std::int64_t otherwise) {
  const Json* value = value_of(config, names);
  return value != nullptr && value->is_number_integer() ? value->get<std::int64_t>() : otherwise;
}

namespace {

/// Returns the architecture of models of the same type without experts, or null.
const Architecture* without_experts(const Architecture& architecture) {
  for (const Architecture* a : architectures())
    if (a->model_type == architecture.model_type && !a->experts) return a;
  return nullptr;
}

}  // namespace

const Architecture* architecture_of(const Json& config) {
  const Json* type = value_of(config, {"model_type"});
  const Architecture* found =
      type == nullptr || !type->is_string() ? nullptr : find_architecture(type->get<std::string>());
  if (found == nullptr || !found->experts) return found;
  const Json text = language_config(config);
  if (found->name == "gemma4") {
    const Json* moe = value_of(text, {"enable_moe_block"});
    return moe != nullptr && *moe == true ? found : without_experts(*found);
  }
  const std::string kinds = layer_kinds(config);
  return kinds.empty() || kinds.find('E') != std::string::npos ? found : without_experts(*found);
}

std::string layer_kinds(const Json& config) {
  if (const Json* pattern = value_of(config, {"hybrid_override_pattern"});
      pattern != nullptr && pattern->is_string())
    return pattern->get<std::string>();
  const auto list = config.find("layers_block_type");
  if (list == config.end() || !list->is_array()) return {};
  std::string kinds;
  for (const Json& kind : *list)
    kinds += kind == "mamba" || kind == "linear_attention"     ? 'M'
             : kind == "attention" || kind == "full_attention" ? '*'
             : kind == "moe"                                   ? 'E'
             : kind == "mlp"                                   ? '-'
                                                               : '?';
  return kinds;
}

const Architecture* architecture_of(const File& file) {
  const std::string* name = file.header().text(kArchitectureKey);
  if (name == nullptr) return nullptr;
  if (const std::string* text = file.header().text(kConfigKey)) {
    const Json config = checkpoint::parse_json_or_null(*text);
    const Architecture* known = config.is_object() ? architecture_of(config) : nullptr;
    if (known != nullptr && known->name == *name) return known;
  }
  const bool experts = file.header().integer(*name + ".expert_count").value_or(0) > 0;
  const bool sigmoid =
      file.header().integer(*name + ".expert_gating_func").value_or(kSoftmax) == kSigmoid;
  const Architecture* found = nullptr;
  for (const Architecture* a : architectures())
    if (a->name == *name && a->experts == experts &&
        (found == nullptr || (a->sigmoid == sigmoid && found->sigmoid != sigmoid)))
      found = a;
  return found;
}

Json language_config(const Json& config) {
  const Json* text = value_of(config, {"text_config"});
  Json all = config;
  if (const std::string kinds = layer_kinds(config); !kinds.empty())
    all["num_hidden_layers"] = kinds.size();
  if (text == nullptr || !text->is_object()) return all;
  all.update(*text);
  if (const Json* type = value_of(config, {"model_type"}); type != nullptr)
    all["model_type"] = *type;
  return all;
}

std::int64_t main_layers(const Json& config) {
  if (const std::string kinds = layer_kinds(config); !kinds.empty())
    return static_cast<std::int64_t>(kinds.size());
  const std::int64_t layers = integer_of(config, {"num_hidden_layers"}, 0);
  const auto text = config.find("text_config");
  return text != config.end() && text->is_object()
             ? integer_of(*text, {"num_hidden_layers"}, layers)
             : layers;
}

std::vector<NewEntry> entries_of(const Json& config, const Architecture& architecture,
                                 const std::string& config_file, std::int64_t layers) {
  require_computed(config, architecture, config_file);
  Entries out(config, architecture, config_file);
  out.plain(std::string(kArchitectureKey), new_text(std::string(architecture.name)));
  out.plain("general.type", new_text("model"));
  out.plain(std::string(kQuantizationKey), new_u32(kQuantizationVersion));
  out.plain(std::string(kFileTypeKey), new_u32(kMostlyNvfp4));
  out.needed("block_count", {"num_hidden_layers"}, 1);
  if (const std::int64_t own = integer_of(config, {"num_hidden_layers"}, 0);
      architecture.predicts && layers > own) {
    out.set("block_count", new_u32(static_cast<std::uint64_t>(layers)));
    out.prediction_layers = layers - own;
    out.u32("nextn_predict_layers", out.prediction_layers);
  }
  out.needed("context_length", {"max_position_embeddings"}, 1);
  out.needed("embedding_length", {"hidden_size"}, 1);
  if (value_of(config, {"moe_intermediate_size"}) == nullptr)
    out.needed("feed_forward_length", {"intermediate_size"}, 1);
  else
    out.optional("feed_forward_length", {"intermediate_size"});
  out.optional("vocab_size", {"vocab_size"});
  const std::string epsilon(architecture.epsilon.model);
  out.add(std::string(architecture.epsilon.file),
          new_f32(positive_of(config, epsilon.c_str(), architecture.default_epsilon)));
  for (const NumberKey& number : architecture.numbers) {
    const std::string name(number.model), key(number.file);
    if (number.factor)
      out.add(key, new_f32(positive_of(config, name.c_str(), 1)));
    else
      out.needed(key, {name.c_str()}, 1);
  }
  add_heads(out, config, architecture, config_file);
  add_rope(out, config, architecture, config_file);
  add_experts(out, config, architecture, config_file);
  add_own_keys(out, config, architecture, config_file);
  return out.take();
}

std::vector<float> rope_factors(const Json& config) {
  const Json rope = rope_of(config);
  if (rope_type(rope) != "llama3") return {};
  const double factor = positive_of(rope, "factor", 8),
               low = positive_of(rope, "low_freq_factor", 1),
               high = positive_of(rope, "high_freq_factor", 4);
  const auto old_context =
      static_cast<double>(integer_of(rope, {"original_max_position_embeddings"}, 8192));
  const std::int64_t dim = head_dim(config);
  constexpr std::int64_t kMostDims = 65536;
  require<UnsupportedError>(dim <= kMostDims, "config.json: head_dim = {}, at most {} can be", dim,
                            kMostDims);
  std::vector<float> factors;
  for (std::int64_t i = 0; i < dim; i += 2) {
    const double frequency =
        std::pow(rope_theta(config), -static_cast<double>(i) / static_cast<double>(dim));
    const double wavelength = 2 * std::numbers::pi / frequency;
    if (wavelength < old_context / high) {
      factors.push_back(1);
    } else if (wavelength > old_context / low) {
      factors.push_back(static_cast<float>(factor));
    } else {
      const double smooth = (old_context / wavelength - low) / (high - low);
      factors.push_back(static_cast<float>(1 / ((1 - smooth) / factor + smooth)));
    }
  }
  return factors;
}

}  // namespace nvfp4::gguf
