#include "checkpoint/sample/sample_models.h"

#include <algorithm>
#include <cmath>

#include "core/require.h"

namespace nvfp4::checkpoint {
namespace {

using Fill = SampleTensor::Fill;

class Builder {
 public:
  Builder(SampleModel& model, double scale) : model_(model), scale_(scale) {}

  /// Returns a scaled width of the real model, as a multiple of `multiple`.
  std::int64_t width(std::int64_t real, std::int64_t multiple) const {
    const double steps = std::round(static_cast<double>(real) * scale_ / multiple);
    return std::max<std::int64_t>(1, static_cast<std::int64_t>(steps)) * multiple;
  }
  /// Returns a scaled number of heads or experts. It shrinks to an eighth at most.
  std::int64_t count(std::int64_t real, std::int64_t multiple) const {
    const double scaled = static_cast<double>(real) * std::max(scale_, 0.125) / multiple;
    return std::max<std::int64_t>(1, std::llround(scaled)) * multiple;
  }

  void linear(const std::string& module, std::int64_t out, std::int64_t in, double sigma = 0.02) {
    model_.tensors.push_back({module + ".weight", {out, in}, Fill::weight, sigma});
  }
  void norm(const std::string& module, std::int64_t size) {
    model_.tensors.push_back({module + ".weight", {size}, Fill::norm, 0.1});
  }
  void bias_f32(const std::string& name, std::int64_t size) {
    model_.tensors.push_back({name, {size}, Fill::bias, 0.05, true});
  }
  void mlp(const std::string& module, std::int64_t hidden, std::int64_t intermediate) {
    linear(module + ".gate_proj", intermediate, hidden);
    linear(module + ".up_proj", intermediate, hidden);
    linear(module + ".down_proj", hidden, intermediate, 0.015);
  }

 private:
  SampleModel& model_;
  double scale_;
};

void add_tokenizer(SampleModel& model, std::string_view begin, std::string_view end,
                   std::int64_t length) {
  model.tokenizer_config = Json{{"add_bos_token", true},
                                {"add_eos_token", false},
                                {"bos_token", begin},
                                {"clean_up_tokenization_spaces", false},
                                {"eos_token", end},
                                {"model_max_length", length},
                                {"tokenizer_class", "PreTrainedTokenizerFast"}};
}

/// Source: config.json of meta-llama/Llama-3.1-8B.
SampleModel llama(int layers, double scale) {
  SampleModel model;
  Builder b(model, scale);
  constexpr std::int64_t kHeadDim = 128;
  const std::int64_t hidden = b.width(4096, 64), intermediate = b.width(14336, 64);
  const std::int64_t kv_heads = b.count(8, 1), heads = 4 * kv_heads, vocab = b.width(128256, 64);

  b.linear("model.embed_tokens", vocab, hidden);
  for (int l = 0; l < layers; ++l) {
    const std::string p = fmt::format("model.layers.{}", l);
    b.norm(p + ".input_layernorm", hidden);
    b.linear(p + ".self_attn.q_proj", heads * kHeadDim, hidden, 0.025);
    b.linear(p + ".self_attn.k_proj", kv_heads * kHeadDim, hidden, 0.03);
    b.linear(p + ".self_attn.v_proj", kv_heads * kHeadDim, hidden, 0.012);
    b.linear(p + ".self_attn.o_proj", hidden, heads * kHeadDim, 0.015);
    b.norm(p + ".post_attention_layernorm", hidden);
    b.mlp(p + ".mlp", hidden, intermediate);
  }
  b.norm("model.norm", hidden);
  b.linear("lm_head", vocab, hidden);

  model.config = Json{{"architectures", {"LlamaForCausalLM"}},
                      {"attention_bias", false},
                      {"attention_dropout", 0.0},
                      {"bos_token_id", vocab - 256},
                      {"eos_token_id", vocab - 255},
                      {"head_dim", kHeadDim},
                      {"hidden_act", "silu"},
                      {"hidden_size", hidden},
                      {"initializer_range", 0.02},
                      {"intermediate_size", intermediate},
                      {"max_position_embeddings", 131072},
                      {"mlp_bias", false},
                      {"model_type", "llama"},
                      {"num_attention_heads", heads},
                      {"num_hidden_layers", layers},
                      {"num_key_value_heads", kv_heads},
                      {"pretraining_tp", 1},
                      {"rms_norm_eps", 1e-5},
                      {"rope_scaling",
                       {{"factor", 8.0},
                        {"high_freq_factor", 4.0},
                        {"low_freq_factor", 1.0},
                        {"original_max_position_embeddings", 8192},
                        {"rope_type", "llama3"}}},
                      {"rope_theta", 500000.0},
                      {"tie_word_embeddings", false},
                      {"torch_dtype", "bfloat16"},
                      {"transformers_version", "4.43.0"},
                      {"use_cache", true},
                      {"vocab_size", vocab}};
  model.generation_config =
      Json{{"bos_token_id", vocab - 256}, {"do_sample", true}, {"eos_token_id", vocab - 255},
           {"temperature", 0.6},          {"top_p", 0.9},      {"transformers_version", "4.43.0"}};
  add_tokenizer(model, "<|begin_of_text|>", "<|end_of_text|>", 131072);
  return model;
}

/// Source: config.json and model.safetensors.index.json of deepseek-ai/DeepSeek-V3. The model's FP8
/// weights are BF16 here.
SampleModel deepseek_v3(int layers, double scale) {
  SampleModel model;
  Builder b(model, scale);
  constexpr std::int64_t kNope = 128, kRope = 64, kValue = 128, kGroups = 8;
  const std::int64_t hidden = b.width(7168, 64), dense = b.width(18432, 64),
                     expert = b.width(2048, 64), q_rank = b.width(1536, 64),
                     kv_rank = b.width(512, 64), heads = b.count(128, 1),
                     experts = b.count(256, kGroups), vocab = b.width(129280, 64);
  const int first_moe = layers > 8 ? 3 : std::min(layers - 1, 1);

  const auto attention = [&](const std::string& p) {
    b.linear(p + ".q_a_proj", q_rank, hidden);
    b.norm(p + ".q_a_layernorm", q_rank);
    b.linear(p + ".q_b_proj", heads * (kNope + kRope), q_rank);
    b.linear(p + ".kv_a_proj_with_mqa", kv_rank + kRope, hidden);
    b.norm(p + ".kv_a_layernorm", kv_rank);
    b.linear(p + ".kv_b_proj", heads * (kNope + kValue), kv_rank);
    b.linear(p + ".o_proj", hidden, heads * kValue, 0.015);
  };
  const auto moe = [&](const std::string& p) {
    b.linear(p + ".gate", experts, hidden);
    b.bias_f32(p + ".gate.e_score_correction_bias", experts);
    for (std::int64_t e = 0; e < experts; ++e)
      b.mlp(fmt::format("{}.experts.{}", p, e), hidden, expert);
    b.mlp(p + ".shared_experts", hidden, expert);
  };
  const auto layer = [&](int l) {
    const std::string p = fmt::format("model.layers.{}", l);
    b.norm(p + ".input_layernorm", hidden);
    attention(p + ".self_attn");
    b.norm(p + ".post_attention_layernorm", hidden);
    if (l < first_moe)
      b.mlp(p + ".mlp", hidden, dense);
    else
      moe(p + ".mlp");
  };

  b.linear("model.embed_tokens", vocab, hidden);
  for (int l = 0; l < layers; ++l) layer(l);
  b.norm("model.norm", hidden);
  b.linear("lm_head", vocab, hidden);
  // The number of the multi-token prediction layer follows that of the last decoder layer.
  const std::string p = fmt::format("model.layers.{}", layers);
  b.linear(p + ".embed_tokens", vocab, hidden);
  b.norm(p + ".enorm", hidden);
  b.norm(p + ".hnorm", hidden);
  b.linear(p + ".eh_proj", hidden, 2 * hidden);
  layer(layers);
  b.norm(p + ".shared_head.norm", hidden);
  b.linear(p + ".shared_head.head", vocab, hidden);

  model.config = Json{{"architectures", {"DeepseekV3ForCausalLM"}},
                      {"attention_bias", false},
                      {"attention_dropout", 0.0},
                      {"bos_token_id", 0},
                      {"eos_token_id", 1},
                      {"ep_size", 1},
                      {"first_k_dense_replace", first_moe},
                      {"hidden_act", "silu"},
                      {"hidden_size", hidden},
                      {"initializer_range", 0.02},
                      {"intermediate_size", dense},
                      {"kv_lora_rank", kv_rank},
                      {"max_position_embeddings", 163840},
                      {"model_type", "deepseek_v3"},
                      {"moe_intermediate_size", expert},
                      {"moe_layer_freq", 1},
                      {"n_group", kGroups},
                      {"n_routed_experts", experts},
                      {"n_shared_experts", 1},
                      {"norm_topk_prob", true},
                      {"num_attention_heads", heads},
                      {"num_experts_per_tok", 8},
                      {"num_hidden_layers", layers},
                      {"num_key_value_heads", heads},
                      {"num_nextn_predict_layers", 1},
                      {"q_lora_rank", q_rank},
                      {"qk_nope_head_dim", kNope},
                      {"qk_rope_head_dim", kRope},
                      {"rms_norm_eps", 1e-6},
                      {"rope_scaling",
                       {{"beta_fast", 32},
                        {"beta_slow", 1},
                        {"factor", 40},
                        {"mscale", 1.0},
                        {"mscale_all_dim", 1.0},
                        {"original_max_position_embeddings", 4096},
                        {"type", "yarn"}}},
                      {"rope_theta", 10000},
                      {"routed_scaling_factor", 2.5},
                      {"scoring_func", "sigmoid"},
                      {"tie_word_embeddings", false},
                      {"topk_group", 4},
                      {"topk_method", "noaux_tc"},
                      {"torch_dtype", "bfloat16"},
                      {"transformers_version", "4.46.3"},
                      {"use_cache", true},
                      {"v_head_dim", kValue},
                      {"vocab_size", vocab}};
  model.generation_config =
      Json{{"bos_token_id", 0},  {"do_sample", true}, {"eos_token_id", 1},
           {"temperature", 0.6}, {"top_p", 0.95},     {"transformers_version", "4.46.3"}};
  add_tokenizer(model, "<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>", 131072);
  return model;
}

}  // namespace

SampleModel sample_model(std::string_view arch, int layers, double scale) {
  require<ValueError>(scale >= 1.0 / 64 && scale <= 4, "sample: scale = {}, must be in 0.015625..4",
                      scale);
  if (arch == "llama") return llama(layers, scale);
  require<ValueError>(arch == "deepseek-v3", ErrorCode::not_a_choice,
                      "sample: arch = '{}', must be one of llama, deepseek-v3", arch);
  return deepseek_v3(layers, scale);
}

}  // namespace nvfp4::checkpoint
