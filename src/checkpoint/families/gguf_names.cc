#include "checkpoint/families/gguf_names.h"

#include <array>

namespace nvfp4::gguf {
namespace {

using enum Size;
using enum Presence;

constexpr bool kScaled = true, kFactor = true;

/// Returns the rows of a group that is not in all layers.
template <std::size_t N>
constexpr NameGroup when(Presence presence, const NamePair (&rows)[N]) {
  return {rows, presence};
}

/// Returns groups from their rows.
template <class... Rows>
constexpr std::array<NameGroup, sizeof...(Rows)> groups(const Rows&... rows) {
  return {NameGroup{rows}...};
}

constexpr Shape kUp = {feed_forward, embedding}, kDown = {embedding, feed_forward},
                kUps = {experts, expert_size, embedding},
                kDowns = {experts, embedding, expert_size},
                kWideUps = {experts, feed_forward, embedding},
                kWideDowns = {experts, embedding, feed_forward}, kUpOne = {shared_size, embedding},
                kDownOne = {embedding, shared_size};
constexpr NamePair kEnds[] = {{"model.embed_tokens", "token_embd", {vocabulary, embedding}},
                              {"model.norm", "output_norm", {embedding}}};
constexpr NamePair kHead[] = {{"lm_head", "output", {vocabulary, embedding}, kScaled}};
/// The head of graphs that apply no scale to it.
constexpr NamePair kPlainHead[] = {{"lm_head", "output", {vocabulary, embedding}}};
constexpr NamePair kNorms[] = {{".input_layernorm", ".attn_norm", {embedding}},
                               {".post_attention_layernorm", ".ffn_norm", {embedding}}};
constexpr NamePair kAttention[] = {
    {".self_attn.q_proj", ".attn_q", {queries, embedding}, kScaled},
    {".self_attn.k_proj", ".attn_k", {keys, embedding}, kScaled},
    {".self_attn.v_proj", ".attn_v", {values, embedding}, kScaled},
    {".self_attn.o_proj", ".attn_output", {embedding, outputs}, kScaled}};
constexpr NamePair kHeadNorms[] = {{".self_attn.q_norm", ".attn_q_norm", {head}},
                                   {".self_attn.k_norm", ".attn_k_norm", {head}}};
constexpr NamePair kMlp[] = {{".mlp.gate_proj", ".ffn_gate", kUp, kScaled},
                             {".mlp.up_proj", ".ffn_up", kUp, kScaled},
                             {".mlp.down_proj", ".ffn_down", kDown, kScaled}};
constexpr NamePair kExperts[] = {{".mlp.gate", ".ffn_gate_inp", {experts, embedding}},
                                 {".mlp.experts.{e}.gate_proj", ".ffn_gate_exps", kUps, kScaled},
                                 {".mlp.experts.{e}.up_proj", ".ffn_up_exps", kUps, kScaled},
                                 {".mlp.experts.{e}.down_proj", ".ffn_down_exps", kDowns, kScaled}};
constexpr NamePair kSharedExpert[] = {
    {".mlp.shared_expert_gate", ".ffn_gate_inp_shexp", {one, embedding}},
    {".mlp.shared_expert.gate_proj", ".ffn_gate_shexp", kUpOne, kScaled},
    {".mlp.shared_expert.up_proj", ".ffn_up_shexp", kUpOne, kScaled},
    {".mlp.shared_expert.down_proj", ".ffn_down_shexp", kDownOne, kScaled}};
constexpr NamePair kShiftedEnds[] = {
    {"model.embed_tokens", "token_embd", {vocabulary, embedding}},
    NamePair{"model.norm", "output_norm", {embedding}}.with(Change::plus_one)};
constexpr NamePair kShiftedHeadNorms[] = {
    NamePair{".self_attn.q_norm", ".attn_q_norm", {head}}.with(Change::plus_one),
    NamePair{".self_attn.k_norm", ".attn_k_norm", {head}}.with(Change::plus_one)};
constexpr NamePair kShiftedNorms[] = {
    NamePair{".input_layernorm", ".attn_norm", {embedding}}.with(Change::plus_one),
    NamePair{".post_attention_layernorm", ".post_attention_norm", {embedding}}.with(
        Change::plus_one)};
constexpr NamePair kQueries[] = {{".self_attn.q_proj", ".attn_q", {queries, embedding}}};
constexpr NamePair kLowRankQueries[] = {
    {".self_attn.q_a_proj", ".attn_q_a", {query_rank, embedding}},
    {".self_attn.q_a_layernorm", ".attn_q_a_norm", {query_rank}},
    {".self_attn.q_b_proj", ".attn_q_b", {queries, query_rank}}};
constexpr NamePair kLatent[] = {
    {".self_attn.kv_a_proj_with_mqa", ".attn_kv_a_mqa", {latent_rope, embedding}},
    {".self_attn.kv_a_layernorm", ".attn_kv_a_norm", {latent}},
    NamePair{".self_attn.kv_b_proj", ".attn_k_b", {heads, latent, latent_key}}.with(
        Heads::latent_keys),
    NamePair{".self_attn.kv_b_proj", ".attn_v_b", {heads, latent_value, latent}}.with(
        Heads::latent_values),
    {".self_attn.o_proj", ".attn_output", {embedding, outputs}, kScaled}};
constexpr NamePair kIndexer[] = {
    {".self_attn.indexer.wq_b", ".indexer.attn_q_b", {indexer_queries, query_rank}},
    {".self_attn.indexer.wk", ".indexer.attn_k", {indexer_head, embedding}},
    {".self_attn.indexer.k_norm", ".indexer.k_norm", {indexer_head}},
    {".self_attn.indexer.weights_proj", ".indexer.proj", {indexer_heads, embedding}}};
constexpr NamePair kRouterBias[] = {
    {".mlp.gate.e_score_correction_bias", ".exp_probs_b.bias", {experts}}};
constexpr NamePair kSharedExperts[] = {
    {".mlp.shared_experts.gate_proj", ".ffn_gate_shexp", kUpOne, kScaled},
    {".mlp.shared_experts.up_proj", ".ffn_up_shexp", kUpOne, kScaled},
    {".mlp.shared_experts.down_proj", ".ffn_down_shexp", kDownOne, kScaled}};
constexpr NamePair kMixtralExperts[] = {
    {".block_sparse_moe.gate", ".ffn_gate_inp", {experts, embedding}},
    {".block_sparse_moe.experts.{e}.w1", ".ffn_gate_exps", kWideUps, kScaled},
    {".block_sparse_moe.experts.{e}.w2", ".ffn_down_exps", kWideDowns, kScaled},
    {".block_sparse_moe.experts.{e}.w3", ".ffn_up_exps", kWideUps, kScaled}};
constexpr NamePair kMiniMaxRows[] = {
    {".block_sparse_moe.e_score_correction_bias", ".exp_probs_b.bias", {experts}},
    {".self_attn.q_norm", ".attn_q_norm", {queries}},
    {".self_attn.k_norm", ".attn_k_norm", {keys}}};
constexpr NamePair kPhi3Layer[] = {
    {".self_attn.qkv_proj", ".attn_qkv", {fused, embedding}, kScaled},
    {".self_attn.o_proj", ".attn_output", {embedding, outputs}, kScaled},
    {".mlp.gate_up_proj", ".ffn_up", {gate_and_up, embedding}, kScaled},
    {".mlp.down_proj", ".ffn_down", kDown, kScaled}};
constexpr NamePair kSecondNorms[] = {
    {".input_layernorm", ".attn_norm", {embedding}},
    {".post_attention_layernorm", ".post_attention_norm", {embedding}}};
constexpr NamePair kHunYuanNorms[] = {{".self_attn.query_layernorm", ".attn_q_norm", {head}},
                                      {".self_attn.key_layernorm", ".attn_k_norm", {head}}};
constexpr NamePair kHunYuanExperts[] = {
    {".mlp.gate.wg", ".ffn_gate_inp", {experts, embedding}},
    {".mlp.experts.{e}.gate_proj", ".ffn_gate_exps", kUps, kScaled},
    {".mlp.experts.{e}.up_proj", ".ffn_up_exps", kUps, kScaled},
    {".mlp.experts.{e}.down_proj", ".ffn_down_exps", kDowns, kScaled},
    {".mlp.shared_mlp.gate_proj", ".ffn_gate_shexp", kUpOne, kScaled},
    {".mlp.shared_mlp.up_proj", ".ffn_up_shexp", kUpOne, kScaled},
    {".mlp.shared_mlp.down_proj", ".ffn_down_shexp", kDownOne, kScaled}};
constexpr NamePair kGptOssLayer[] = {
    {".self_attn.sinks", ".attn_sinks.weight", {heads}},
    {".mlp.router", ".ffn_gate_inp", {experts, embedding}},
    {".mlp.experts.{e}.gate_proj", ".ffn_gate_exps", kUps},
    {".mlp.experts.{e}.up_proj", ".ffn_up_exps", kUps},
    {".mlp.experts.{e}.down_proj", ".ffn_down_exps", kDowns},
    {".mlp.experts.gate_proj_bias", ".ffn_gate_exps.bias", {experts, expert_size}},
    {".mlp.experts.up_proj_bias", ".ffn_up_exps.bias", {experts, expert_size}},
    {".mlp.experts.down_proj_bias", ".ffn_down_exps.bias", {experts, embedding}}};
constexpr NamePair kShiftedMlpNorms[] = {
    NamePair{".pre_feedforward_layernorm", ".ffn_norm", {embedding}}.with(Change::plus_one),
    NamePair{".post_feedforward_layernorm", ".post_ffw_norm", {embedding}}.with(Change::plus_one)};
constexpr NamePair kGemma4Ends[] = {
    {"model.embed_tokens_per_layer", "per_layer_token_embd", {vocabulary, all_layer_inputs}},
    {"model.per_layer_model_projection", "per_layer_model_proj", {all_layer_inputs, embedding}},
    {"model.per_layer_projection_norm", "per_layer_proj_norm", {layer_input}}};
constexpr NamePair kGemma4Layer[] = {
    {".input_layernorm", ".attn_norm", {embedding}},
    {".post_attention_layernorm", ".post_attention_norm", {embedding}},
    {".pre_feedforward_layernorm", ".ffn_norm", {embedding}},
    {".post_feedforward_layernorm", ".post_ffw_norm", {embedding}},
    {".self_attn.q_norm", ".attn_q_norm", {head}},
    {".self_attn.q_proj", ".attn_q", {queries, embedding}, kScaled},
    {".self_attn.o_proj", ".attn_output", {embedding, outputs}, kScaled}};
// Layers may have the keys and values of another layer, or values that are the keys.
constexpr NamePair kGemma4Keys[] = {{".self_attn.k_norm", ".attn_k_norm", {head}},
                                    {".self_attn.k_proj", ".attn_k", {keys, embedding}, kScaled}};
constexpr NamePair kGemma4Optional[] = {
    {".self_attn.v_proj", ".attn_v", {values, embedding}, kScaled},
    {".layer_scalar", ".layer_output_scale.weight", {one}}};
constexpr NamePair kGemma4Inputs[] = {
    {".per_layer_input_gate", ".inp_gate", {layer_input, embedding}},
    {".per_layer_projection", ".proj", {embedding, layer_input}},
    {".post_per_layer_input_norm", ".post_norm", {embedding}}};
// The scale of ffn_down_exps is the router's, so those experts cannot have one of NVFP4.
constexpr NamePair kGemma4Experts[] = {
    {".router.proj", ".ffn_gate_inp", {experts, embedding}},
    {".router.scale", ".ffn_gate_inp.scale", {embedding}},
    {".router.per_expert_scale", ".ffn_down_exps.scale", {experts}},
    {".experts.{e}.gate_proj", ".ffn_gate_exps", kUps, kScaled},
    {".experts.{e}.up_proj", ".ffn_up_exps", kUps, kScaled},
    {".experts.{e}.down_proj", ".ffn_down_exps", kDowns},
    {".pre_feedforward_layernorm_2", ".pre_ffw_norm_2", {embedding}},
    {".post_feedforward_layernorm_1", ".post_ffw_norm_1", {embedding}},
    {".post_feedforward_layernorm_2", ".post_ffw_norm_2", {embedding}}};
constexpr NamePair kPrediction[] = {
    {".eh_proj", ".nextn.eh_proj", {embedding, embedding_pair}, kScaled},
    {".enorm", ".nextn.enorm", {embedding}},
    {".hnorm", ".nextn.hnorm", {embedding}}};
constexpr NamePair kPredictionHead[] = {
    {".embed_tokens", ".nextn.embed_tokens", {vocabulary, embedding}},
    {".shared_head.head", ".nextn.shared_head_head", {vocabulary, embedding}, kScaled},
    {".shared_head.norm", ".nextn.shared_head_norm", {embedding}}};
constexpr NamePair kLinearAttention[] = {
    NamePair{".linear_attn.in_proj_qkv", ".attn_qkv", {linear_fused, embedding}, kScaled}.with(
        Heads::last_rows),
    NamePair{".linear_attn.in_proj_z", ".attn_gate", {linear_values, embedding}, kScaled}.with(
        Heads::rows),
    NamePair{".linear_attn.in_proj_a", ".ssm_alpha", {linear_heads, embedding}, kScaled}.with(
        Heads::rows),
    NamePair{".linear_attn.in_proj_b", ".ssm_beta", {linear_heads, embedding}, kScaled}.with(
        Heads::rows),
    NamePair{".linear_attn.A_log", ".ssm_a", {linear_heads}}
        .with(Heads::rows)
        .with(Change::minus_exp),
    NamePair{".linear_attn.dt_bias", ".ssm_dt.bias", {linear_heads}}.with(Heads::rows),
    NamePair{".linear_attn.conv1d", ".ssm_conv1d", {linear_fused, kernel}}
        .with(Heads::last_rows)
        .with(Form::squeezed),
    {".linear_attn.norm", ".ssm_norm", {linear_head}},
    NamePair{".linear_attn.out_proj", ".ssm_out", {embedding, linear_values}, kScaled}.with(
        Heads::columns)};
constexpr NamePair kGatedAttention[] = {
    {".self_attn.q_proj", ".attn_q", {gated_queries, embedding}, kScaled},
    {".self_attn.k_proj", ".attn_k", {keys, embedding}, kScaled},
    {".self_attn.v_proj", ".attn_v", {values, embedding}, kScaled},
    {".self_attn.o_proj", ".attn_output", {embedding, outputs}, kScaled}};
constexpr NamePair kGroupedLinearAttention[] = {
    NamePair{".linear_attn.in_proj_qkvz", ".attn_qkv", {linear_fused, embedding}}.with(
        Heads::grouped_qkv),
    NamePair{".linear_attn.in_proj_qkvz", ".attn_gate", {linear_values, embedding}}.with(
        Heads::grouped_gate),
    {".linear_attn.in_proj_ba", ".ssm_ba", {linear_gates, embedding}},
    NamePair{".linear_attn.A_log", ".ssm_a", {linear_heads}}.with(Change::minus_exp),
    {".linear_attn.dt_bias", ".ssm_dt.bias", {linear_heads}},
    NamePair{".linear_attn.conv1d", ".ssm_conv1d", {linear_fused, kernel}}.with(Form::squeezed),
    {".linear_attn.norm", ".ssm_norm", {linear_head}},
    {".linear_attn.out_proj", ".ssm_out", {embedding, linear_values}}};
constexpr NamePair kNemotronEnds[] = {{"model.embeddings", "token_embd", {vocabulary, embedding}},
                                      {"model.norm_f", "output_norm", {embedding}}};
constexpr NamePair kNemotronNorm[] = {{".norm", ".attn_norm", {embedding}}};
constexpr NamePair kMamba[] = {
    {".mixer.in_proj", ".ssm_in", {mamba_inputs, embedding}, kScaled},
    {".mixer.out_proj", ".ssm_out", {embedding, linear_values}, kScaled},
    NamePair{".mixer.A_log", ".ssm_a", {linear_heads, one}}
        .with(Change::minus_exp)
        .with(Form::column),
    NamePair{".mixer.D", ".ssm_d", {linear_heads, one}}.with(Form::column),
    {".mixer.dt_bias", ".ssm_dt.bias", {linear_heads}},
    NamePair{".mixer.conv1d", ".ssm_conv1d", {mamba_channels, kernel}}.with(Form::squeezed),
    NamePair{".mixer.norm", ".ssm_norm", {mamba_groups, mamba_group}}.with(Form::grouped)};
constexpr NamePair kMixerAttention[] = {
    {".mixer.q_proj", ".attn_q", {queries, embedding}, kScaled},
    {".mixer.k_proj", ".attn_k", {keys, embedding}, kScaled},
    {".mixer.v_proj", ".attn_v", {values, embedding}, kScaled},
    {".mixer.o_proj", ".attn_output", {embedding, outputs}, kScaled}};
constexpr NamePair kMixerMlp[] = {{".mixer.up_proj", ".ffn_up", kUp, kScaled},
                                  {".mixer.down_proj", ".ffn_down", kDown, kScaled}};
constexpr NamePair kMixerExperts[] = {
    {".mixer.gate", ".ffn_gate_inp", {experts, embedding}},
    {".mixer.gate.e_score_correction_bias", ".exp_probs_b.bias", {experts}},
    {".mixer.experts.{e}.up_proj", ".ffn_up_exps", {experts, expert_size, expert_input}, kScaled},
    {".mixer.experts.{e}.down_proj",
     ".ffn_down_exps",
     {experts, expert_input, expert_size},
     kScaled},
    {".mixer.shared_experts.up_proj", ".ffn_up_shexp", kUpOne, kScaled},
    {".mixer.shared_experts.down_proj", ".ffn_down_shexp", kDownOne, kScaled}};
constexpr NamePair kMixerLatent[] = {
    {".mixer.fc1_latent_proj", ".ffn_latent_down", {expert_input, embedding}},
    {".mixer.fc2_latent_proj", ".ffn_latent_up", {embedding, expert_input}}};
constexpr NamePair kMixerPrediction[] = {
    {".eh_proj", ".nextn.eh_proj", {embedding, embedding_pair}, kScaled},
    {".enorm", ".nextn.enorm", {embedding}},
    {".hnorm", ".nextn.hnorm", {embedding}},
    {".shared_head.norm", ".nextn.shared_head_norm", {embedding}},
    {".post_attention_layernorm", ".post_attention_norm", {embedding}}};
constexpr NamePair kShiftedPrediction[] = {
    {".eh_proj", ".nextn.eh_proj", {embedding, embedding_pair}, kScaled},
    NamePair{".enorm", ".nextn.enorm", {embedding}}.with(Change::plus_one),
    NamePair{".hnorm", ".nextn.hnorm", {embedding}}.with(Change::plus_one),
    NamePair{".shared_head.norm", ".nextn.shared_head_norm", {embedding}}.with(Change::plus_one)};

constexpr PredictionName kQwenPrediction[] = {{"mtp.fc", "eh_proj"},
                                              {"mtp.pre_fc_norm_embedding", "enorm"},
                                              {"mtp.pre_fc_norm_hidden", "hnorm"},
                                              {"mtp.norm", "shared_head.norm"},
                                              {"mtp.layers.0", ""}};
/// The two layers of the module, attention and experts, become one.
constexpr PredictionName kNemotronPrediction[] = {
    {"mtp.layers.1.norm", "post_attention_layernorm"},
    {"mtp.layers.1.final_layernorm", "shared_head.norm"},
    {"mtp.layers.0.mixer.q_proj", "mixer.q_proj"},
    {"mtp.layers.0.mixer.k_proj", "mixer.k_proj"},
    {"mtp.layers.0.mixer.v_proj", "mixer.v_proj"},
    {"mtp.layers.0.mixer.o_proj", "mixer.o_proj"},
    {"mtp.layers.1.mixer", "mixer"},
    {"mtp.layers.0", ""}};

constexpr NumberKey kGraniteNumbers[] = {{"attention_multiplier", "attention.scale", kFactor},
                                         {"embedding_multiplier", "embedding_scale", kFactor},
                                         {"residual_multiplier", "residual_scale", kFactor},
                                         {"logits_scaling", "logit_scale", kFactor}};
constexpr NumberKey kIndexerNumbers[] = {{"index_n_heads", "attention.indexer.head_count"},
                                         {"index_head_dim", "attention.indexer.key_length"},
                                         {"index_topk", "attention.indexer.top_k"}};
constexpr NumberKey kSlidingNumbers[] = {{"sliding_window", "attention.sliding_window"}};
constexpr NumberKey kLinearNumbers[] = {{"linear_conv_kernel_dim", "ssm.conv_kernel"},
                                        {"linear_key_head_dim", "ssm.state_size"},
                                        {"linear_num_key_heads", "ssm.group_count"},
                                        {"linear_num_value_heads", "ssm.time_step_rank"}};
constexpr NumberKey kMambaNumbers[] = {{"conv_kernel", "ssm.conv_kernel"},
                                       {"ssm_state_size", "ssm.state_size"},
                                       {"n_groups", "ssm.group_count"},
                                       {"mamba_num_heads", "ssm.time_step_rank"}};

constexpr auto kLlama = groups(kEnds, when(optional, kHead), kNorms, kAttention, when(dense, kMlp));
constexpr auto kMixtral =
    groups(kEnds, when(optional, kHead), kNorms, kAttention, when(sparse, kMixtralExperts));
constexpr auto kQwen2Moe =
    groups(kEnds, when(optional, kHead), kNorms, kAttention, when(dense, kMlp),
           when(sparse, kExperts), when(sparse, kSharedExpert));
constexpr auto kQwen3 =
    groups(kEnds, when(optional, kHead), kNorms, kAttention, kHeadNorms, when(dense, kMlp));
constexpr auto kQwen3Moe = groups(kEnds, when(optional, kHead), kNorms, kAttention, kHeadNorms,
                                  when(dense, kMlp), when(sparse, kExperts));
constexpr auto kDeepSeek =
    groups(kEnds, when(optional, kPlainHead), kNorms, when(full_rank, kQueries),
           when(low_rank, kLowRankQueries), kLatent, when(dense, kMlp), when(sparse, kExperts),
           when(together, kRouterBias), when(shared, kSharedExperts));
constexpr auto kGlmMoeDsa = groups(
    kEnds, when(optional, kPlainHead), kNorms, kLowRankQueries, kLatent, when(complete, kIndexer),
    when(dense, kMlp), when(sparse, kExperts), when(together, kRouterBias),
    when(shared, kSharedExperts), when(complete, kPrediction), when(optional, kPredictionHead));
constexpr auto kPhi3 = groups(kEnds, when(optional, kHead), kNorms, kPhi3Layer);
constexpr auto kGemma3 = groups(kShiftedEnds, when(optional, kHead), kShiftedNorms,
                                kShiftedMlpNorms, kAttention, kShiftedHeadNorms, when(dense, kMlp));
constexpr auto kGlm4Moe = groups(
    kEnds, when(optional, kHead), kSecondNorms, kAttention, when(optional, kHeadNorms),
    when(dense, kMlp), when(sparse, kExperts), when(sparse, kRouterBias),
    when(shared, kSharedExperts), when(complete, kPrediction), when(optional, kPredictionHead));
constexpr auto kMiniMaxM2 = groups(kEnds, kHead, kNorms, kAttention, kMixtralExperts, kMiniMaxRows);
constexpr auto kHunYuanDense =
    groups(kEnds, when(optional, kHead), kNorms, kAttention, kHunYuanNorms, when(dense, kMlp));
constexpr auto kHunYuanMoe =
    groups(kEnds, when(optional, kHead), kNorms, kAttention, kHunYuanNorms, kHunYuanExperts);
constexpr auto kGemma4 =
    groups(kEnds, when(optional, kHead), when(complete, kGemma4Ends), kGemma4Layer,
           when(complete, kGemma4Keys), when(optional, kGemma4Optional),
           when(complete, kGemma4Inputs), kMlp);
constexpr auto kGemma4Moe =
    groups(kEnds, when(optional, kHead), when(complete, kGemma4Ends), kGemma4Layer,
           when(complete, kGemma4Keys), when(optional, kGemma4Optional),
           when(complete, kGemma4Inputs), kMlp, kGemma4Experts);
constexpr auto kGptOss = groups(kEnds, kHead, kSecondNorms, kAttention, kGptOssLayer);
constexpr auto kNemotronH =
    groups(kNemotronEnds, when(optional, kHead), kNemotronNorm, when(complete, kMamba),
           when(complete, kMixerAttention), when(complete, kMixerMlp));
constexpr auto kNemotronHMoe =
    groups(kNemotronEnds, when(optional, kHead), kNemotronNorm, when(complete, kMamba),
           when(complete, kMixerAttention), when(complete, kMixerExperts),
           when(complete, kMixerLatent), when(complete, kMixerPrediction));
constexpr auto kQwen3Next = groups(
    kShiftedEnds, when(optional, kHead), kShiftedNorms, when(linear, kGroupedLinearAttention),
    when(quadratic, kGatedAttention), when(quadratic, kShiftedHeadNorms), kExperts, kSharedExpert,
    when(complete, kShiftedPrediction));
constexpr auto kQwen35 =
    groups(kShiftedEnds, when(optional, kHead), kShiftedNorms, when(linear, kLinearAttention),
           when(quadratic, kGatedAttention), when(quadratic, kShiftedHeadNorms), when(dense, kMlp),
           when(complete, kShiftedPrediction));
constexpr auto kQwen35Moe =
    groups(kShiftedEnds, when(optional, kHead), kShiftedNorms, when(linear, kLinearAttention),
           when(quadratic, kGatedAttention), when(quadratic, kShiftedHeadNorms), kExperts,
           kSharedExpert, when(complete, kShiftedPrediction));

constexpr Traits kGemma3Traits = {.scales_mlp = false,
                                  .activation = "gelu_pytorch_tanh",
                                  .numbers = kSlidingNumbers,
                                  .foreign = false};
constexpr Traits kGemma4Traits = {
    .rotary = 1, .activation = "gelu_pytorch_tanh", .numbers = kSlidingNumbers, .foreign = false};
/// Layers of Nemotron-H are Mamba, attention, and experts or MLPs. Llama.cpp drops the module for
/// multi-token prediction of models without experts.
constexpr Traits kNemotronHTraits = {
    .prefix = "backbone.",
    .interleaves = true,
    .activation = "relu2",
    .numbers = kMambaNumbers,
    .epsilon = {"layer_norm_epsilon", "attention.layer_norm_epsilon"},
    .default_epsilon = 1e-5,
    .foreign = false};
constexpr Traits kQwen35Traits = {.rotary = 0.25,
                                  .numbers = kLinearNumbers,
                                  .predicts = true,
                                  .prediction = kQwenPrediction,
                                  .foreign = false};

/// Returns traits with the prefix of models that also see.
constexpr Traits seeing(Traits traits, std::string_view prefix) {
  traits.prefix = prefix;
  return traits;
}
constexpr Traits with_experts(Traits traits) {
  traits.experts = true;
  return traits;
}
constexpr Traits with_prediction(Traits traits, std::span<const PredictionName> prediction) {
  traits.predicts = true;
  traits.prediction = prediction;
  return traits;
}

constexpr Architecture kArchitectures[] = {
    Architecture("llama", "LlamaForCausalLM", "llama", kLlama, {.interleaves = true}),
    Architecture("mistral", "MistralForCausalLM", "llama", kLlama, {.interleaves = true}),
    Architecture("granite", "GraniteForCausalLM", "granite", kLlama,
                 {.interleaves = true, .scales_mlp = false, .numbers = kGraniteNumbers}),
    Architecture("mixtral", "MixtralForCausalLM", "llama", kMixtral,
                 {.interleaves = true, .experts = true}),
    Architecture("qwen2", "Qwen2ForCausalLM", "qwen2", kLlama, {.scales_mlp = false}),
    Architecture("qwen2_moe", "Qwen2MoeForCausalLM", "qwen2moe", kQwen2Moe,
                 {.experts = true, .normalizes = false, .scales_mlp = false}),
    Architecture("qwen3", "Qwen3ForCausalLM", "qwen3", kQwen3),
    Architecture("qwen3_moe", "Qwen3MoeForCausalLM", "qwen3moe", kQwen3Moe,
                 {.experts = true, .normalizes = true}),
    Architecture(
        "deepseek_v3", "DeepseekV3ForCausalLM", "deepseek2", kDeepSeek,
        {.experts = true, .latent = true, .routes = true, .sigmoid = true, .scales_mlp = false}),
    Architecture("deepseek_v2", "DeepseekV2ForCausalLM", "deepseek2", kDeepSeek,
                 {.experts = true, .latent = true, .routes = true, .scales_mlp = false}),
    Architecture("phi3", "Phi3ForCausalLM", "phi3", kPhi3,
                 {.scales_mlp = false, .rotary = 1, .foreign = false}),
    Architecture("gemma3_text", "Gemma3ForCausalLM", "gemma3", kGemma3, kGemma3Traits),
    Architecture("gemma3", "Gemma3ForConditionalGeneration", "gemma3", kGemma3,
                 seeing(kGemma3Traits, "language_model.model.")),
    Architecture("gemma4_text", "Gemma4ForCausalLM", "gemma4", kGemma4Moe,
                 with_experts(kGemma4Traits)),
    Architecture("gemma4_text", "Gemma4ForCausalLM", "gemma4", kGemma4, kGemma4Traits),
    Architecture("gemma4", "Gemma4ForConditionalGeneration", "gemma4", kGemma4Moe,
                 seeing(with_experts(kGemma4Traits), "model.language_model.")),
    Architecture("gemma4", "Gemma4ForConditionalGeneration", "gemma4", kGemma4,
                 seeing(kGemma4Traits, "model.language_model.")),
    Architecture("glm4_moe", "Glm4MoeForCausalLM", "glm4moe", kGlm4Moe,
                 {.experts = true,
                  .routes = true,
                  .sigmoid = true,
                  .scales_mlp = false,
                  .rotary = 0.5,
                  .predicts = true,
                  .foreign = false}),
    Architecture("glm_moe_dsa", "GlmMoeDsaForCausalLM", "glm-dsa", kGlmMoeDsa,
                 {.experts = true,
                  .latent = true,
                  .routes = true,
                  .sigmoid = true,
                  .numbers = kIndexerNumbers,
                  .predicts = true,
                  .foreign = false}),
    Architecture("minimax_m2", "MiniMaxM2ForCausalLM", "minimax-m2", kMiniMaxM2,
                 {.experts = true,
                  .sigmoid = true,
                  .normalizes = true,
                  .scales_mlp = false,
                  .rotary = 1,
                  .foreign = false}),
    Architecture("hunyuan_v1_dense", "HunYuanDenseV1ForCausalLM", "hunyuan-dense", kHunYuanDense,
                 {.scales_mlp = false, .foreign = false}),
    Architecture("hunyuan_v1_moe", "HunYuanMoEV1ForCausalLM", "hunyuan-moe", kHunYuanMoe,
                 {.experts = true, .scales_mlp = false, .foreign = false}),
    Architecture("nemotron_h", "NemotronHForCausalLM", "nemotron_h_moe", kNemotronHMoe,
                 with_prediction(with_experts(kNemotronHTraits), kNemotronPrediction)),
    Architecture("nemotron_h", "NemotronHForCausalLM", "nemotron_h", kNemotronH, kNemotronHTraits),
    Architecture("qwen3_5", "Qwen3_5ForConditionalGeneration", "qwen35", kQwen35,
                 seeing(kQwen35Traits, "model.language_model.")),
    Architecture("qwen3_5_text", "Qwen3_5ForCausalLM", "qwen35", kQwen35, kQwen35Traits),
    Architecture("qwen3_5_moe", "Qwen3_5MoeForConditionalGeneration", "qwen35moe", kQwen35Moe,
                 seeing(with_experts(kQwen35Traits), "model.language_model.")),
    Architecture("qwen3_5_moe_text", "Qwen3_5MoeForCausalLM", "qwen35moe", kQwen35Moe,
                 with_experts(kQwen35Traits)),
    Architecture("qwen3_next", "Qwen3NextForCausalLM", "qwen3next", kQwen3Next,
                 {.experts = true,
                  .normalizes = true,
                  .rotary = 0.25,
                  .numbers = kLinearNumbers,
                  .predicts = true,
                  .prediction = kQwenPrediction,
                  .foreign = false}),
    Architecture(
        "gpt_oss", "GptOssForCausalLM", "gpt-oss", kGptOss,
        {.experts = true, .scales_mlp = false, .numbers = kSlidingNumbers, .foreign = false}),
};

}  // namespace

std::span<const Architecture> known_architectures() { return kArchitectures; }

}  // namespace nvfp4::gguf
