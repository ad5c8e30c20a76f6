// Keys and tensors of single architectures.
// Source: github.com/ggml-org/llama.cpp, conversion/phi.py, gemma.py, hunyuan.py, minimax.py,
// qwen.py.
#include <cmath>
#include <limits>

#include "checkpoint/base/json_members.h"
#include "checkpoint/gguf/config.h"

namespace nvfp4::gguf {
namespace {

/// The largest number of an array of i32.
constexpr std::int64_t kMostInArray = std::numeric_limits<std::int32_t>::max();

/// Returns a number that an array of i32 in the file holds. `name`: its member of config.json.
std::int64_t in_array(std::int64_t number, std::string_view name, const std::string& file,
                      std::int64_t most = kMostInArray) {
  require<FormatError>(number >= 0 && number <= most, "{}: {} = {}, must be from 0 to {}", file,
                       name, number, most);
  return number;
}

/// Returns the heads of keys and values: as many as those of queries without their member.
std::int64_t key_value_heads(const Json& config, const std::string& file) {
  const char* name = value_of(config, {"num_key_value_heads"}) == nullptr ? "num_attention_heads"
                                                                          : "num_key_value_heads";
  return in_array(integer_of(config, {name}, 0), name, file);
}

/// Returns the context length before its extension.
std::int64_t original_length(const Json& config) {
  return integer_of(
      rope_of(config), {"original_max_position_embeddings"},
      integer_of(config, {"original_max_position_embeddings", "max_position_embeddings"}, 0));
}

void add_phi3(Entries& out, const Json& config, const std::string& file) {
  const std::int64_t length = original_length(config);
  require<FormatError>(length >= 2 && length <= 0xFFFFFFFF,
                       "{}: original_max_position_embeddings = {}, must be from 2 to 2^32 - 1",
                       file, length);
  out.set("rope.freq_base", new_f32(rope_theta(config)));
  out.set("rope.scaling.original_context_length", new_u32(static_cast<std::uint64_t>(length)));
  out.u32("attention.sliding_window", integer_of(config, {"sliding_window"}, 0));
  const Json rope = rope_of(config);
  if (value_of(rope, {"long_factor"}) == nullptr) return;
  const auto original = static_cast<double>(length);
  const double scale =
      static_cast<double>(integer_of(config, {"max_position_embeddings"}, 0)) / original;
  out.add("rope.scaling.attn_factor",
          new_f32(scale > 1 ? std::sqrt(1 + std::log(scale) / std::log(original)) : 1));
}

/// Requires full attention in each layer whose number, from 1, is a multiple of `period`, and
/// sliding attention in all others.
void require_full_attention_each(std::size_t period, const Json& config, const std::string& file) {
  const Json& types = list_of(config, "layer_types");
  for (std::size_t i = 0; i < types.size(); ++i)
    require<UnsupportedError>(
        types[i] == ((i + 1) % period == 0 ? "full_attention" : "sliding_attention"),
        "{}: layer_types[{}] = {}: llama.cpp has full attention in one layer of {}, the last", file,
        i, checkpoint::dump_line(types[i]), period);
}

void add_gemma3(Entries& out, const Json& config, const std::string& file) {
  if (value_of(rope_of(config), {"rope_theta"}) == nullptr &&
      value_of(config, {"rope_theta"}) == nullptr)
    out.set("rope.freq_base", new_f32(1e6));
  const Json* rope = value_of(config, {"rope_parameters"});
  const Json* sliding = rope == nullptr ? nullptr : value_of(*rope, {"sliding_attention"});
  out.add("rope.freq_base_swa", new_f32(sliding != nullptr && sliding->is_object()
                                            ? positive_of(*sliding, "rope_theta", 10000)
                                            : positive_of(config, "rope_local_base_freq", 10000)));
  if (value_of(config, {"final_logit_softcapping"}) != nullptr)
    out.add("final_logit_softcapping", new_f32(positive_of(config, "final_logit_softcapping", 1)));
  require<UnsupportedError>(value_of(config, {"attn_logit_softcapping"}) == nullptr,
                            "{}: attn_logit_softcapping = {}, must be null for llama.cpp", file,
                            number_of(config, "attn_logit_softcapping", 0));
  require_full_attention_each(6, config, file);
  constexpr std::int64_t kLayersOf27B = 62;
  const auto layers = integer_of(config, {"num_hidden_layers"}, 0);
  const std::int64_t heads =
      std::max<std::int64_t>(integer_of(config, {"num_attention_heads"}, 1), 1);
  const std::int64_t scalar =
      layers == kLayersOf27B ? integer_of(config, {"hidden_size"}, 0) / heads : head_dim(config);
  require<UnsupportedError>(integer_of(config, {"query_pre_attn_scalar"}, 256) == scalar,
                            "{}: query_pre_attn_scalar = {}, must be {} for llama.cpp", file,
                            integer_of(config, {"query_pre_attn_scalar"}, 256), scalar);
}

/// Adds rotary embeddings that are scaled by alpha.
void add_hunyuan(Entries& out, const Json& config, const std::string& file) {
  const Json rope = rope_of(config);
  if (rope_type(rope) == "dynamic") {
    constexpr std::uint64_t kContext = 256 * 1024;  // the number in config.json is wrong
    const auto dim = static_cast<double>(head_dim(config));
    require<FormatError>(dim > 2, "{}: head_dim = {}, must be greater than 2", file, dim);
    const double alpha = positive_of(rope, "alpha", 1);
    out.set("rope.freq_base", new_f32(rope_theta(config) * std::pow(alpha, dim / (dim - 2))));
    out.add("rope.scaling.type", new_text("none"));
    out.add("rope.scaling.factor", new_f32(1));
    out.add("rope.scaling.original_context_length", new_u32(kContext));
    out.set("context_length", new_u32(kContext));
  }
}

void add_expert_length(Entries& out) {
  if (!out.has("expert_feed_forward_length"))
    out.needed("expert_feed_forward_length", {"intermediate_size"}, 1);
}

void add_hunyuan_moe(Entries& out, const Json& config, const std::string& file) {
  add_hunyuan(out, config, file);
  add_expert_length(out);
  out.needed("expert_shared_feed_forward_length", {"intermediate_size"}, 1);
  out.u32("expert_shared_count", integer_of(config, {"num_shared_expert"}, 1));
  const Json* shares = value_of(config, {"use_cla"});
  require<UnsupportedError>(shares == nullptr || *shares == false,
                            "{}: use_cla = true, must be false for llama.cpp", file);
}

void add_minimax(Entries& out, const Json& /*config*/, const std::string& /*file*/) {
  add_expert_length(out);
}

void add_gpt_oss(Entries& out, const Json& config, const std::string& file) {
  add_expert_length(out);
  require_full_attention_each(2, config, file);
  constexpr double kLimit = 7;
  require<UnsupportedError>(number_of(config, "swiglu_limit", kLimit) == kLimit,
                            "{}: swiglu_limit = {}, must be {} for llama.cpp", file,
                            number_of(config, "swiglu_limit", kLimit), kLimit);
}

/// Adds the layers that choose keys themselves. The others take over the choice of the layer
/// before.
void add_indexer(Entries& out, const Json& config, const std::string& /*file*/) {
  const Json& types = member_of(config, "indexer_types");
  if (!types.is_array()) return;
  NewValue full{.type = ValueType::array, .element = ValueType::boolean};
  for (const Json& type : types) full.numbers.push_back(type == "full");
  out.add("attention.indexer.types", std::move(full));
}

/// Adds the keys of gated delta nets.
void add_linear(Entries& out, const Json& config, const std::string& file) {
  const std::int64_t values = integer_of(config, {"linear_num_value_heads"}, 0),
                     keys = integer_of(config, {"linear_num_key_heads"}, 0),
                     size = integer_of(config, {"linear_value_head_dim"}, 0),
                     key_size = integer_of(config, {"linear_key_head_dim"}, 0);
  require<UnsupportedError>(size == key_size,
                            "{}: linear_value_head_dim = {}, must be linear_key_head_dim = {} for "
                            "llama.cpp",
                            file, size, key_size);
  require<FormatError>(keys > 0 && values % keys == 0 && values >= 0 && values <= 0xFFFF &&
                           size >= 0 && size <= 0xFFFF,
                       "{}: linear_num_value_heads = {}, must be a multiple of "
                       "linear_num_key_heads = {}",
                       file, values, keys);
  out.u32("ssm.inner_size", values * size, 1);
  const std::int64_t interval = integer_of(config, {"full_attention_interval"}, 4);
  out.u32("full_attention_interval", interval, 1);
  if (const Json& types = member_of(config, "layer_types"); types.is_array()) {
    NewValue recurrent{.type = ValueType::array, .element = ValueType::boolean};
    for (const Json& type : types) recurrent.numbers.push_back(type == "linear_attention");
    recurrent.numbers.resize(types.size() + static_cast<std::size_t>(out.prediction_layers));
    out.add("attention.recurrent_layers", std::move(recurrent));
  }
}

/// Adds the keys of Qwen3.5: also the sections of rotary embeddings of text and images.
void add_qwen35(Entries& out, const Json& config, const std::string& file) {
  add_linear(out, config, file);
  std::vector<std::int64_t> sections = {11, 11, 10};
  const Json rope = rope_of(config);
  if (const Json& given = member_of(rope, "mrope_section"); given.is_array()) {
    sections.clear();
    for (const Json& section : given)
      sections.push_back(section.is_number_integer() ? section.get<std::int64_t>() : -1);
    const auto fits = [](std::int64_t n) { return n >= 0 && n <= kMostInArray; };
    require<FormatError>(sections.size() <= 4 && std::ranges::all_of(sections, fits),
                         "{}: mrope_section = {}, must be up to 4 integers from 0 to {}", file,
                         checkpoint::dump_line(given), kMostInArray);
  }
  sections.resize(4);
  out.add("rope.dimension_sections", new_i32s(std::move(sections)));
}

/// Adds the keys of Nemotron-H. A layer of Mamba has neither heads of keys nor a feed-forward
/// length.
void add_nemotron_h(Entries& out, const Json& config, const std::string& file) {
  const std::string kinds = layer_kinds(config);
  const bool experts = kinds.find('E') != std::string::npos;
  require<UnsupportedError>(
      !kinds.empty() && kinds.find_first_not_of(experts ? "M*E" : "M*-") == std::string::npos,
      "{}: layers '{}', must be Mamba (M), attention (*) and either experts (E) or MLPs (-)", file,
      printable(kinds));
  std::vector<std::int64_t> keys, lengths;
  const char* length = experts ? "moe_intermediate_size" : "intermediate_size";
  const std::int64_t heads = key_value_heads(config, file),
                     size = in_array(integer_of(config, {length}, 0), length, file);
  for (const char kind : kinds) {
    keys.push_back(kind == '*' ? heads : 0);
    lengths.push_back(kind == 'E' || kind == '-' ? size : 0);
  }
  for (std::int64_t i = 0; i < out.prediction_layers; ++i) {  // attention, and experts
    keys.push_back(heads);
    lengths.push_back(size);
  }
  out.set("attention.head_count_kv", new_i32s(std::move(keys)));
  out.set("feed_forward_length", new_i32s(std::move(lengths)));
  constexpr std::uint64_t kContext = 1 << 20;  // without positions any length is possible
  out.set("context_length", new_u32(kContext));
  out.add("rope.scaling.finetuned", new_bool(false));
  const std::int64_t mamba = integer_of(config, {"mamba_num_heads"}, 0),
                     mamba_size = integer_of(config, {"mamba_head_dim"}, 0);
  require<FormatError>(mamba > 0 && mamba <= 0xFFFF && mamba_size > 0 && mamba_size <= 0xFFFF,
                       "{}: mamba_num_heads = {} and mamba_head_dim = {}, must be from 1 to 65535",
                       file, mamba, mamba_size);
  out.u32("ssm.inner_size", mamba * mamba_size, 1);
  if (!experts) return;
  out.needed("expert_shared_feed_forward_length", {"moe_shared_expert_intermediate_size"}, 1);
  out.needed("expert_shared_count", {"n_shared_experts"});
  out.add("expert_weights_norm", new_bool(value_of(config, {"norm_topk_prob"}) == nullptr ||
                                          *value_of(config, {"norm_topk_prob"}) == true));
  out.add("expert_weights_scale", new_f32(number_of(config, "routed_scaling_factor", 1)));
  out.optional("moe_latent_size", {"moe_latent_size"});
}

/// A number, and its member of config.json.
struct Setting {
  std::int64_t value = 0;
  std::string name;
};

/// Returns a setting of the layers with full attention: its own member, or that of the layers'
/// overrides.
Setting of_full_layers(const Json& config, const char* own, const char* name) {
  const Setting given = {integer_of(config, {own}, 0), own};
  if (given.value != 0) return given;
  for (const auto& [layer, settings] : object_of(config, "per_layer_config").items())
    if (settings.is_object() && settings.contains(name))
      return {integer_of(settings, {name}, 0),
              fmt::format("per_layer_config.{}.{}", printable(layer), name)};
  return given;
}

/// Returns the size of the heads of layers with full attention.
std::int64_t full_head(const Json& config, const std::string& file) {
  const Setting head = of_full_layers(config, "global_head_dim", "head_dim");
  require<FormatError>(head.value > 0 && head.value <= 0xFFFF, "{}: {} = {}, must be from 1 to {}",
                       file, head.name, head.value, 0xFFFF);
  return head.value;
}

/// Returns the share of a head that rotary embeddings cover. `name`: its member of config.json.
double rotary_share(const Json& rope, std::string_view name, const std::string& file) {
  const double share = number_of(rope, "partial_rotary_factor", 1);
  require<FormatError>(share > 0 && share <= 1, "{}: {} = {}, must be above 0 and at most 1", file,
                       name, share);
  return share;
}

/// Adds the keys of Gemma 4, whose layers with full attention have heads of another size.
void add_gemma4(Entries& out, const Json& config, const std::string& file) {
  NewValue sliding{.type = ValueType::array, .element = ValueType::boolean};
  const Json& types = list_of(config, "layer_types");
  require<FormatError>(!types.empty(), "{}: has no layer_types", file);
  for (const Json& type : types) sliding.numbers.push_back(type == "sliding_attention");
  const std::int64_t layers = integer_of(config, {"num_hidden_layers"}, 0),
                     shared = integer_of(config, {"num_kv_shared_layers"}, 0),
                     head = full_head(config, file);
  require<FormatError>(std::ssize(sliding.numbers) == layers && shared >= 0 && shared <= layers,
                       "{}: {} layer_types and num_kv_shared_layers = {}, must be {} and at most "
                       "as many",
                       file, sliding.numbers.size(), shared, layers);
  const Setting heads = of_full_layers(config, "num_global_key_value_heads", "num_key_value_heads");
  if (const std::int64_t keys = in_array(heads.value, heads.name, file); keys > 0) {
    std::vector<std::int64_t> all;
    for (const std::int64_t is_sliding : sliding.numbers)
      all.push_back(is_sliding ? key_value_heads(config, file) : keys);
    out.set("attention.head_count_kv", new_i32s(std::move(all)));
  }
  if (member_of(config, "use_double_wide_mlp") == true) {
    constexpr std::int64_t kMost = kMostInArray / 2;  // it is doubled
    const std::int64_t length =
        in_array(integer_of(config, {"intermediate_size"}, 0), "intermediate_size", file, kMost);
    std::vector<std::int64_t> all(static_cast<std::size_t>(layers), length);
    for (std::int64_t i = layers - shared; i < layers; ++i)
      all[static_cast<std::size_t>(i)] = 2 * length;
    out.set("feed_forward_length", new_i32s(std::move(all)));
  }
  const Json* rope = value_of(config, {"rope_parameters"});
  const Json* local = rope == nullptr ? nullptr : value_of(*rope, {"sliding_attention"});
  const Json none = Json::object();
  if (local == nullptr || !local->is_object()) local = &none;
  for (const char* key : {"attention.key_length", "attention.value_length", "rope.dimension_count"})
    out.set(key, new_u32(static_cast<std::uint64_t>(head)));
  out.needed("attention.key_length_swa", {"head_dim"}, 1);
  out.needed("attention.value_length_swa", {"head_dim"}, 1);
  const double share =
      rotary_share(*local, "rope_parameters.sliding_attention.partial_rotary_factor", file);
  out.u32("rope.dimension_count_swa",
          static_cast<std::int64_t>(static_cast<double>(head_dim(config)) * share), 1);
  out.add("rope.freq_base", new_f32(rope_theta(config)));
  out.add("rope.freq_base_swa", new_f32(positive_of(*local, "rope_theta", 10000)));
  out.add("attention.sliding_window_pattern", std::move(sliding));
  out.u32("attention.shared_kv_layers", shared);
  out.u32("embedding_length_per_layer_input",
          integer_of(config, {"hidden_size_per_layer_input"}, 0));
  if (value_of(config, {"final_logit_softcapping"}) != nullptr)
    out.add("final_logit_softcapping", new_f32(positive_of(config, "final_logit_softcapping", 1)));
  const Json* causal = value_of(config, {"use_bidirectional_attention"});
  require<UnsupportedError>(causal == nullptr || *causal != "all",
                            "{}: use_bidirectional_attention = \"all\", must be null or "
                            "\"vision\" for llama.cpp",
                            file);
}

/// Returns the factors of the rotary embeddings of Gemma 4: an infinite one for each frequency that
/// is not rotated.
std::vector<float> proportional_factors(const Json& config) {
  const std::int64_t head = full_head(config, "config.json");
  const double share = rotary_share(rope_of(config), "partial_rotary_factor", "config.json");
  constexpr float kNever = 1e30f;
  const auto rotated = static_cast<std::size_t>(static_cast<double>(head) * share / 2);
  std::vector<float> factors(static_cast<std::size_t>(head / 2), kNever);
  std::fill_n(factors.begin(), rotated, 1.0f);
  return factors;
}

struct OwnKeys {
  std::string_view name;
  void (*add)(Entries& out, const Json& config, const std::string& file);
};
constexpr OwnKeys kOwnKeys[] = {
    {"phi3", add_phi3},
    {"gemma3", add_gemma3},
    {"hunyuan-dense", add_hunyuan},
    {"minimax-m2", add_minimax},
    {"hunyuan-moe", add_hunyuan_moe},
    {"glm-dsa", add_indexer},
    {"qwen35", add_qwen35},
    {"qwen35moe", add_qwen35},
    {"qwen3next", add_linear},
    {"nemotron_h", add_nemotron_h},
    {"gemma4", add_gemma4},
    {"nemotron_h_moe", add_nemotron_h},
    {"gpt-oss", add_gpt_oss},
};

}  // namespace

bool scales_rope_itself(const Architecture& architecture, std::string_view rope_type) {
  if (architecture.name.starts_with("nemotron_h")) return true;  // it has no positions
  return rope_type == "dynamic" ? architecture.name.starts_with("hunyuan")
         : rope_type == "proportional"
             ? architecture.name == "gemma4"
             : architecture.name == "phi3" && (rope_type == "longrope" || rope_type == "su");
}

void add_own_keys(Entries& out, const Json& config, const Architecture& architecture,
                  const std::string& file) {
  for (const OwnKeys& keys : kOwnKeys)
    if (keys.name == architecture.name) keys.add(out, config, file);
}

std::vector<OwnTensor> own_tensors(const Json& config, const Architecture& architecture) {
  std::vector<OwnTensor> out;
  if (std::vector<float> factors = rope_factors(config); !factors.empty())
    out.push_back({kRopeTensors[0], std::move(factors)});
  if (architecture.name == "gemma4") out.push_back({kRopeTensors[0], proportional_factors(config)});
  const Json rope = rope_of(config);
  if (architecture.name != "phi3" || value_of(rope, {"long_factor"}) == nullptr) return out;
  for (const auto& [name, key] :
       {std::pair{kRopeTensors[1], "long_factor"}, std::pair{kRopeTensors[2], "short_factor"}}) {
    OwnTensor& tensor = out.emplace_back(name);
    for (const Json& factor : list_of(rope, key))
      tensor.values.push_back(factor.is_number() ? factor.get<float>() : 0.0f);
    require<FormatError>(
        !tensor.values.empty() && std::ranges::all_of(tensor.values, [](float f) { return f > 0; }),
        "config.json: {} = {}, must be numbers greater than 0", key,
        rope.contains(key) ? checkpoint::dump_line(rope.at(key)) : "nothing");
  }
  return out;
}

}  // namespace nvfp4::gguf
