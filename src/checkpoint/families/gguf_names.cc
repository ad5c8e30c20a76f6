#include "checkpoint/families/gguf_names.h"

namespace nvfp4::gguf {
namespace {

using enum Size;
using enum Presence;

constexpr bool kScaled = true;
constexpr bool kFactor = true;

constexpr Shape kUp = {feed_forward, embedding}, kDown = {embedding, feed_forward},
                kUps = {experts, expert_size, embedding},
                kDowns = {experts, embedding, expert_size},
                kWideUps = {experts, feed_forward, embedding},
                kWideDowns = {experts, embedding, feed_forward}, kUpOne = {shared_size, embedding},
                kDownOne = {embedding, shared_size};

constexpr NamePair kEnds[] = {{"model.embed_tokens", "token_embd", {vocabulary, embedding}},
                              {"model.norm", "output_norm", {embedding}}};
constexpr NamePair kHead[] = {{"lm_head", "output", {vocabulary, embedding}, kScaled}};
constexpr NamePair kNorms[] = {
    {"model.layers.{l}.input_layernorm", "blk.{l}.attn_norm", {embedding}},
    {"model.layers.{l}.post_attention_layernorm", "blk.{l}.ffn_norm", {embedding}}};
constexpr NamePair kAttention[] = {
    {"model.layers.{l}.self_attn.q_proj", "blk.{l}.attn_q", {queries, embedding}, kScaled},
    {"model.layers.{l}.self_attn.k_proj", "blk.{l}.attn_k", {keys, embedding}, kScaled},
    {"model.layers.{l}.self_attn.v_proj", "blk.{l}.attn_v", {values, embedding}, kScaled},
    {"model.layers.{l}.self_attn.o_proj", "blk.{l}.attn_output", {embedding, outputs}, kScaled}};
constexpr NamePair kHeadNorms[] = {
    {"model.layers.{l}.self_attn.q_norm", "blk.{l}.attn_q_norm", {head}},
    {"model.layers.{l}.self_attn.k_norm", "blk.{l}.attn_k_norm", {head}}};
constexpr NamePair kQueries[] = {
    {"model.layers.{l}.self_attn.q_proj", "blk.{l}.attn_q", {queries, embedding}}};
constexpr NamePair kLowRankQueries[] = {
    {"model.layers.{l}.self_attn.q_a_proj", "blk.{l}.attn_q_a", {query_rank, embedding}},
    {"model.layers.{l}.self_attn.q_a_layernorm", "blk.{l}.attn_q_a_norm", {query_rank}},
    {"model.layers.{l}.self_attn.q_b_proj", "blk.{l}.attn_q_b", {queries, query_rank}}};
constexpr NamePair kLatent[] = {
    {"model.layers.{l}.self_attn.kv_a_proj_with_mqa",
     "blk.{l}.attn_kv_a_mqa",
     {latent_rope, embedding}},
    {"model.layers.{l}.self_attn.kv_a_layernorm", "blk.{l}.attn_kv_a_norm", {latent}},
    {"model.layers.{l}.self_attn.kv_b_proj", "blk.{l}.attn_kv_b", {latent_heads, latent}},
    {"model.layers.{l}.self_attn.o_proj", "blk.{l}.attn_output", {embedding, outputs}, kScaled}};
constexpr NamePair kMlp[] = {
    {"model.layers.{l}.mlp.gate_proj", "blk.{l}.ffn_gate", kUp, kScaled},
    {"model.layers.{l}.mlp.up_proj", "blk.{l}.ffn_up", kUp, kScaled},
    {"model.layers.{l}.mlp.down_proj", "blk.{l}.ffn_down", kDown, kScaled}};
constexpr NamePair kExperts[] = {
    {"model.layers.{l}.mlp.gate", "blk.{l}.ffn_gate_inp", {experts, embedding}},
    {"model.layers.{l}.mlp.experts.{e}.gate_proj", "blk.{l}.ffn_gate_exps", kUps, kScaled},
    {"model.layers.{l}.mlp.experts.{e}.up_proj", "blk.{l}.ffn_up_exps", kUps, kScaled},
    {"model.layers.{l}.mlp.experts.{e}.down_proj", "blk.{l}.ffn_down_exps", kDowns, kScaled}};
constexpr NamePair kSharedExpert[] = {
    {"model.layers.{l}.mlp.shared_expert_gate", "blk.{l}.ffn_gate_inp_shexp", {one, embedding}},
    {"model.layers.{l}.mlp.shared_expert.gate_proj", "blk.{l}.ffn_gate_shexp", kUpOne, kScaled},
    {"model.layers.{l}.mlp.shared_expert.up_proj", "blk.{l}.ffn_up_shexp", kUpOne, kScaled},
    {"model.layers.{l}.mlp.shared_expert.down_proj", "blk.{l}.ffn_down_shexp", kDownOne, kScaled}};
constexpr NamePair kRouterBias[] = {
    {"model.layers.{l}.mlp.gate.e_score_correction_bias", "blk.{l}.exp_probs_b.bias", {experts}}};
constexpr NamePair kSharedExperts[] = {
    {"model.layers.{l}.mlp.shared_experts.gate_proj", "blk.{l}.ffn_gate_shexp", kUpOne, kScaled},
    {"model.layers.{l}.mlp.shared_experts.up_proj", "blk.{l}.ffn_up_shexp", kUpOne, kScaled},
    {"model.layers.{l}.mlp.shared_experts.down_proj", "blk.{l}.ffn_down_shexp", kDownOne, kScaled}};
constexpr NamePair kMixtralExperts[] = {
    {"model.layers.{l}.block_sparse_moe.gate", "blk.{l}.ffn_gate_inp", {experts, embedding}},
    {"model.layers.{l}.block_sparse_moe.experts.{e}.w1", "blk.{l}.ffn_gate_exps", kWideUps,
     kScaled},
    {"model.layers.{l}.block_sparse_moe.experts.{e}.w2", "blk.{l}.ffn_down_exps", kWideDowns,
     kScaled},
    {"model.layers.{l}.block_sparse_moe.experts.{e}.w3", "blk.{l}.ffn_up_exps", kWideUps, kScaled}};

constexpr NamePair kMiniMaxRows[] = {
    {"model.layers.{l}.block_sparse_moe.e_score_correction_bias",
     "blk.{l}.exp_probs_b.bias",
     {experts}},
    {"model.layers.{l}.self_attn.q_norm", "blk.{l}.attn_q_norm", {queries}},
    {"model.layers.{l}.self_attn.k_norm", "blk.{l}.attn_k_norm", {keys}}};
constexpr NamePair kPhi3Layer[] = {
    {"model.layers.{l}.self_attn.qkv_proj", "blk.{l}.attn_qkv", {fused, embedding}, kScaled},
    {"model.layers.{l}.self_attn.o_proj", "blk.{l}.attn_output", {embedding, outputs}, kScaled},
    {"model.layers.{l}.mlp.gate_up_proj", "blk.{l}.ffn_up", {gate_and_up, embedding}, kScaled},
    {"model.layers.{l}.mlp.down_proj", "blk.{l}.ffn_down", kDown, kScaled}};
constexpr NamePair kSecondNorms[] = {
    {"model.layers.{l}.input_layernorm", "blk.{l}.attn_norm", {embedding}},
    {"model.layers.{l}.post_attention_layernorm", "blk.{l}.post_attention_norm", {embedding}}};
constexpr NamePair kHunYuanNorms[] = {
    {"model.layers.{l}.self_attn.query_layernorm", "blk.{l}.attn_q_norm", {head}},
    {"model.layers.{l}.self_attn.key_layernorm", "blk.{l}.attn_k_norm", {head}}};
constexpr NamePair kHunYuanExperts[] = {
    {"model.layers.{l}.mlp.gate.wg", "blk.{l}.ffn_gate_inp", {experts, embedding}},
    {"model.layers.{l}.mlp.experts.{e}.gate_proj", "blk.{l}.ffn_gate_exps", kUps, kScaled},
    {"model.layers.{l}.mlp.experts.{e}.up_proj", "blk.{l}.ffn_up_exps", kUps, kScaled},
    {"model.layers.{l}.mlp.experts.{e}.down_proj", "blk.{l}.ffn_down_exps", kDowns, kScaled},
    {"model.layers.{l}.mlp.shared_mlp.gate_proj", "blk.{l}.ffn_gate_shexp", kUpOne, kScaled},
    {"model.layers.{l}.mlp.shared_mlp.up_proj", "blk.{l}.ffn_up_shexp", kUpOne, kScaled},
    {"model.layers.{l}.mlp.shared_mlp.down_proj", "blk.{l}.ffn_down_shexp", kDownOne, kScaled}};

constexpr NamePair kGptOssLayer[] = {
    {"model.layers.{l}.self_attn.sinks", "blk.{l}.attn_sinks.weight", {heads}},
    {"model.layers.{l}.mlp.router", "blk.{l}.ffn_gate_inp", {experts, embedding}},
    {"model.layers.{l}.mlp.experts.{e}.gate_proj", "blk.{l}.ffn_gate_exps", kUps},
    {"model.layers.{l}.mlp.experts.{e}.up_proj", "blk.{l}.ffn_up_exps", kUps},
    {"model.layers.{l}.mlp.experts.{e}.down_proj", "blk.{l}.ffn_down_exps", kDowns},
    {"model.layers.{l}.mlp.experts.gate_proj_bias",
     "blk.{l}.ffn_gate_exps.bias",
     {experts, expert_size}},
    {"model.layers.{l}.mlp.experts.up_proj_bias",
     "blk.{l}.ffn_up_exps.bias",
     {experts, expert_size}},
    {"model.layers.{l}.mlp.experts.down_proj_bias",
     "blk.{l}.ffn_down_exps.bias",
     {experts, embedding}}};

/// Returns the row of a norm that multiplies by 1 + weight.
constexpr NamePair shifted(std::string_view model, std::string_view file, Size size) {
  return {.model = model, .file = file, .shape = {size}, .change = Change::plus_one};
}
constexpr NamePair kShiftedEnds[] = {{"model.embed_tokens", "token_embd", {vocabulary, embedding}},
                                     shifted("model.norm", "output_norm", embedding)};
constexpr NamePair kShiftedHeadNorms[] = {
    shifted("model.layers.{l}.self_attn.q_norm", "blk.{l}.attn_q_norm", head),
    shifted("model.layers.{l}.self_attn.k_norm", "blk.{l}.attn_k_norm", head)};
constexpr NamePair kShiftedNorms[] = {
    shifted("model.layers.{l}.input_layernorm", "blk.{l}.attn_norm", embedding),
    shifted("model.layers.{l}.post_attention_layernorm", "blk.{l}.post_attention_norm", embedding)};
constexpr NamePair kShiftedMlpNorms[] = {
    shifted("model.layers.{l}.pre_feedforward_layernorm", "blk.{l}.ffn_norm", embedding),
    shifted("model.layers.{l}.post_feedforward_layernorm", "blk.{l}.post_ffw_norm", embedding)};

/// Returns the row of a weight whose heads of values are in llama.cpp's order. Source:
/// conversion/qwen.py, _reorder_v_heads().
constexpr NamePair ordered(std::string_view model, std::string_view file, Shape shape, Heads heads,
                           bool scaled = false, Change change = Change::none,
                           Form form = Form::same) {
  return {model, file, shape, scaled, change, heads, form};
}
constexpr NamePair kLinearAttention[] = {
    ordered("model.layers.{l}.linear_attn.in_proj_qkv", "blk.{l}.attn_qkv",
            {linear_fused, embedding}, Heads::last_rows, kScaled),
    ordered("model.layers.{l}.linear_attn.in_proj_z", "blk.{l}.attn_gate",
            {linear_values, embedding}, Heads::rows, kScaled),
    ordered("model.layers.{l}.linear_attn.in_proj_a", "blk.{l}.ssm_alpha",
            {linear_heads, embedding}, Heads::rows, kScaled),
    ordered("model.layers.{l}.linear_attn.in_proj_b", "blk.{l}.ssm_beta", {linear_heads, embedding},
            Heads::rows, kScaled),
    ordered("model.layers.{l}.linear_attn.A_log", "blk.{l}.ssm_a", {linear_heads}, Heads::rows,
            false, Change::minus_exp),
    ordered("model.layers.{l}.linear_attn.dt_bias", "blk.{l}.ssm_dt.bias", {linear_heads},
            Heads::rows),
    ordered("model.layers.{l}.linear_attn.conv1d", "blk.{l}.ssm_conv1d", {linear_fused, kernel},
            Heads::last_rows, false, Change::none, Form::squeezed),
    {"model.layers.{l}.linear_attn.norm", "blk.{l}.ssm_norm", {linear_head}},
    ordered("model.layers.{l}.linear_attn.out_proj", "blk.{l}.ssm_out", {embedding, linear_values},
            Heads::columns, kScaled)};
constexpr NamePair kGatedAttention[] = {
    {"model.layers.{l}.self_attn.q_proj", "blk.{l}.attn_q", {gated_queries, embedding}, kScaled},
    {"model.layers.{l}.self_attn.k_proj", "blk.{l}.attn_k", {keys, embedding}, kScaled},
    {"model.layers.{l}.self_attn.v_proj", "blk.{l}.attn_v", {values, embedding}, kScaled},
    {"model.layers.{l}.self_attn.o_proj", "blk.{l}.attn_output", {embedding, outputs}, kScaled}};

constexpr NameGroup kLlama[] = {{kEnds}, {kHead, optional}, {kNorms}, {kAttention}, {kMlp, dense}};
constexpr NameGroup kMixtral[] = {
    {kEnds}, {kHead, optional}, {kNorms}, {kAttention}, {kMixtralExperts, sparse}};
constexpr NameGroup kQwen2Moe[] = {{kEnds},
                                   {kHead, optional},
                                   {kNorms},
                                   {kAttention},
                                   {kMlp, dense},
                                   {kExperts, sparse},
                                   {kSharedExpert, sparse}};
constexpr NameGroup kQwen3[] = {{kEnds},      {kHead, optional}, {kNorms},
                                {kAttention}, {kHeadNorms},      {kMlp, dense}};
constexpr NameGroup kQwen3Moe[] = {{kEnds},      {kHead, optional}, {kNorms},          {kAttention},
                                   {kHeadNorms}, {kMlp, dense},     {kExperts, sparse}};
constexpr NameGroup kDeepSeek[] = {{kEnds},
                                   {kHead, optional},
                                   {kNorms},
                                   {kQueries, full_rank},
                                   {kLowRankQueries, low_rank},
                                   {kLatent},
                                   {kMlp, dense},
                                   {kExperts, sparse},
                                   {kRouterBias, together},
                                   {kSharedExperts, shared}};

constexpr NameGroup kPhi3[] = {{kEnds}, {kHead, optional}, {kNorms}, {kPhi3Layer}};
constexpr NameGroup kGemma3[] = {{kShiftedEnds},     {kHead, optional}, {kShiftedNorms},
                                 {kShiftedMlpNorms}, {kAttention},      {kShiftedHeadNorms},
                                 {kMlp, dense}};
constexpr NameGroup kGlm4Moe[] = {{kEnds},
                                  {kHead, optional},
                                  {kSecondNorms},
                                  {kAttention},
                                  {kHeadNorms, optional},
                                  {kMlp, dense},
                                  {kExperts, sparse},
                                  {kRouterBias, sparse},
                                  {kSharedExperts, shared}};
constexpr NameGroup kMiniMaxM2[] = {{kEnds},      {kHead},           {kNorms},
                                    {kAttention}, {kMixtralExperts}, {kMiniMaxRows}};
constexpr NameGroup kHunYuanDense[] = {{kEnds},      {kHead, optional}, {kNorms},
                                       {kAttention}, {kHunYuanNorms},   {kMlp, dense}};
constexpr NameGroup kHunYuanMoe[] = {{kEnds},      {kHead, optional}, {kNorms},
                                     {kAttention}, {kHunYuanNorms},   {kHunYuanExperts}};
constexpr NamePair kGroupedLinearAttention[] = {
    {.model = "model.layers.{l}.linear_attn.in_proj_qkvz",
     .file = "blk.{l}.attn_qkv",
     .shape = {linear_fused, embedding},
     .heads = Heads::grouped_qkv},
    {.model = "model.layers.{l}.linear_attn.in_proj_qkvz",
     .file = "blk.{l}.attn_gate",
     .shape = {linear_values, embedding},
     .heads = Heads::grouped_gate},
    {"model.layers.{l}.linear_attn.in_proj_ba", "blk.{l}.ssm_ba", {linear_gates, embedding}},
    {.model = "model.layers.{l}.linear_attn.A_log",
     .file = "blk.{l}.ssm_a",
     .shape = {linear_heads},
     .change = Change::minus_exp},
    {"model.layers.{l}.linear_attn.dt_bias", "blk.{l}.ssm_dt.bias", {linear_heads}},
    {.model = "model.layers.{l}.linear_attn.conv1d",
     .file = "blk.{l}.ssm_conv1d",
     .shape = {linear_fused, kernel},
     .form = Form::squeezed},
    {"model.layers.{l}.linear_attn.norm", "blk.{l}.ssm_norm", {linear_head}},
    {"model.layers.{l}.linear_attn.out_proj", "blk.{l}.ssm_out", {embedding, linear_values}}};

constexpr NamePair kNemotronEnds[] = {{"model.embeddings", "token_embd", {vocabulary, embedding}},
                                      {"model.norm_f", "output_norm", {embedding}}};
constexpr NamePair kNemotronNorm[] = {{"model.layers.{l}.norm", "blk.{l}.attn_norm", {embedding}}};
constexpr NamePair kMamba[] = {
    {"model.layers.{l}.mixer.in_proj", "blk.{l}.ssm_in", {mamba_inputs, embedding}, kScaled},
    {"model.layers.{l}.mixer.out_proj", "blk.{l}.ssm_out", {embedding, linear_values}, kScaled},
    {.model = "model.layers.{l}.mixer.A_log",
     .file = "blk.{l}.ssm_a",
     .shape = {linear_heads, one},
     .change = Change::minus_exp,
     .form = Form::column},
    {.model = "model.layers.{l}.mixer.D",
     .file = "blk.{l}.ssm_d",
     .shape = {linear_heads, one},
     .form = Form::column},
    {"model.layers.{l}.mixer.dt_bias", "blk.{l}.ssm_dt.bias", {linear_heads}},
    {.model = "model.layers.{l}.mixer.conv1d",
     .file = "blk.{l}.ssm_conv1d",
     .shape = {mamba_channels, kernel},
     .form = Form::squeezed},
    {.model = "model.layers.{l}.mixer.norm",
     .file = "blk.{l}.ssm_norm",
     .shape = {mamba_groups, mamba_group},
     .form = Form::grouped}};
constexpr NamePair kMixerAttention[] = {
    {"model.layers.{l}.mixer.q_proj", "blk.{l}.attn_q", {queries, embedding}, kScaled},
    {"model.layers.{l}.mixer.k_proj", "blk.{l}.attn_k", {keys, embedding}, kScaled},
    {"model.layers.{l}.mixer.v_proj", "blk.{l}.attn_v", {values, embedding}, kScaled},
    {"model.layers.{l}.mixer.o_proj", "blk.{l}.attn_output", {embedding, outputs}, kScaled}};
constexpr NamePair kMixerMlp[] = {
    {"model.layers.{l}.mixer.up_proj", "blk.{l}.ffn_up", kUp, kScaled},
    {"model.layers.{l}.mixer.down_proj", "blk.{l}.ffn_down", kDown, kScaled}};
constexpr NamePair kMixerExperts[] = {
    {"model.layers.{l}.mixer.gate", "blk.{l}.ffn_gate_inp", {experts, embedding}},
    {"model.layers.{l}.mixer.gate.e_score_correction_bias", "blk.{l}.exp_probs_b.bias", {experts}},
    {"model.layers.{l}.mixer.experts.{e}.up_proj",
     "blk.{l}.ffn_up_exps",
     {experts, expert_size, expert_input},
     kScaled},
    {"model.layers.{l}.mixer.experts.{e}.down_proj",
     "blk.{l}.ffn_down_exps",
     {experts, expert_input, expert_size},
     kScaled},
    {"model.layers.{l}.mixer.shared_experts.up_proj", "blk.{l}.ffn_up_shexp", kUpOne, kScaled},
    {"model.layers.{l}.mixer.shared_experts.down_proj", "blk.{l}.ffn_down_shexp", kDownOne,
     kScaled}};
constexpr NamePair kMixerLatent[] = {
    {"model.layers.{l}.mixer.fc1_latent_proj",
     "blk.{l}.ffn_latent_down",
     {expert_input, embedding}},
    {"model.layers.{l}.mixer.fc2_latent_proj", "blk.{l}.ffn_latent_up", {embedding, expert_input}}};

constexpr NameGroup kNemotronH[] = {
    {kNemotronEnds},    {kHead, optional},           {kNemotronNorm},
    {kMamba, complete}, {kMixerAttention, complete}, {kMixerMlp, complete}};
constexpr NameGroup kNemotronHMoe[] = {
    {kNemotronEnds},         {kHead, optional},           {kNemotronNorm},
    {kMamba, complete},      {kMixerAttention, complete}, {kMixerExperts, complete},
    {kMixerLatent, complete}};
constexpr NameGroup kQwen3Next[] = {{kShiftedEnds},
                                    {kHead, optional},
                                    {kShiftedNorms},
                                    {kGroupedLinearAttention, linear},
                                    {kGatedAttention, quadratic},
                                    {kShiftedHeadNorms, quadratic},
                                    {kExperts},
                                    {kSharedExpert}};
constexpr NameGroup kGptOss[] = {{kEnds}, {kHead}, {kSecondNorms}, {kAttention}, {kGptOssLayer}};
constexpr NameGroup kQwen35[] = {{kShiftedEnds},
                                 {kHead, optional},
                                 {kShiftedNorms},
                                 {kLinearAttention, linear},
                                 {kGatedAttention, quadratic},
                                 {kShiftedHeadNorms, quadratic},
                                 {kMlp, dense}};
constexpr NameGroup kQwen35Moe[] = {{kShiftedEnds},
                                    {kHead, optional},
                                    {kShiftedNorms},
                                    {kLinearAttention, linear},
                                    {kGatedAttention, quadratic},
                                    {kShiftedHeadNorms, quadratic},
                                    {kExperts},
                                    {kSharedExpert}};

constexpr NumberKey kGraniteNumbers[] = {{"attention_multiplier", "attention.scale", kFactor},
                                         {"embedding_multiplier", "embedding_scale", kFactor},
                                         {"residual_multiplier", "residual_scale", kFactor},
                                         {"logits_scaling", "logit_scale", kFactor}};
constexpr NumberKey kSlidingNumbers[] = {{"sliding_window", "attention.sliding_window"}};
constexpr NumberKey kLinearNumbers[] = {{"linear_conv_kernel_dim", "ssm.conv_kernel"},
                                        {"linear_key_head_dim", "ssm.state_size"},
                                        {"linear_num_key_heads", "ssm.group_count"},
                                        {"linear_num_value_heads", "ssm.time_step_rank"}};

constexpr NumberKey kMambaNumbers[] = {{"conv_kernel", "ssm.conv_kernel"},
                                       {"ssm_state_size", "ssm.state_size"},
                                       {"n_groups", "ssm.group_count"},
                                       {"mamba_num_heads", "ssm.time_step_rank"}};

/// Returns the row of a Nemotron-H model, whose layers are Mamba, attention, and experts or MLPs.
constexpr Architecture nemotron_h(std::string_view name, std::span<const NameGroup> groups,
                                  bool experts) {
  return {.model_type = "nemotron_h",
          .class_name = "NemotronHForCausalLM",
          .name = name,
          .groups = groups,
          .prefix = "backbone.",
          .interleaves = true,
          .experts = experts,
          .activation = "relu2",
          .numbers = kMambaNumbers,
          .foreign = false};
}

/// Returns the row of a Qwen3.5 model without or with the prefix of models that also see.
constexpr Architecture qwen35(std::string_view model_type, std::string_view class_name,
                              std::string_view prefix, bool experts) {
  return {.model_type = model_type,
          .class_name = class_name,
          .name = experts ? "qwen35moe" : "qwen35",
          .groups = experts ? std::span<const NameGroup>(kQwen35Moe) : kQwen35,
          .prefix = prefix,
          .experts = experts,
          .rotary = 0.25,
          .numbers = kLinearNumbers,
          .foreign = false};
}

}  // namespace

const Architecture kLlamaNames = {.model_type = "llama",
                                  .class_name = "LlamaForCausalLM",
                                  .name = "llama",
                                  .groups = kLlama,
                                  .interleaves = true};
const Architecture kMistralNames = {.model_type = "mistral",
                                    .class_name = "MistralForCausalLM",
                                    .name = "llama",
                                    .groups = kLlama,
                                    .interleaves = true};
const Architecture kGraniteNames = {.model_type = "granite",
                                    .class_name = "GraniteForCausalLM",
                                    .name = "granite",
                                    .groups = kLlama,
                                    .interleaves = true,
                                    .scales_mlp = false,
                                    .numbers = kGraniteNumbers};
const Architecture kMixtralNames = {.model_type = "mixtral",
                                    .class_name = "MixtralForCausalLM",
                                    .name = "llama",
                                    .groups = kMixtral,
                                    .interleaves = true,
                                    .experts = true};
const Architecture kQwen2Names = {.model_type = "qwen2",
                                  .class_name = "Qwen2ForCausalLM",
                                  .name = "qwen2",
                                  .groups = kLlama,
                                  .scales_mlp = false};
const Architecture kQwen2MoeNames = {.model_type = "qwen2_moe",
                                     .class_name = "Qwen2MoeForCausalLM",
                                     .name = "qwen2moe",
                                     .groups = kQwen2Moe,
                                     .experts = true,
                                     .normalizes = false,
                                     .scales_mlp = false};
const Architecture kQwen3Names = {
    .model_type = "qwen3", .class_name = "Qwen3ForCausalLM", .name = "qwen3", .groups = kQwen3};
const Architecture kQwen3MoeNames = {.model_type = "qwen3_moe",
                                     .class_name = "Qwen3MoeForCausalLM",
                                     .name = "qwen3moe",
                                     .groups = kQwen3Moe,
                                     .experts = true,
                                     .normalizes = true};
const Architecture kDeepSeekV3Names = {.model_type = "deepseek_v3",
                                       .class_name = "DeepseekV3ForCausalLM",
                                       .name = "deepseek2",
                                       .groups = kDeepSeek,
                                       .experts = true,
                                       .latent = true,
                                       .routes = true,
                                       .sigmoid = true,
                                       .scales_mlp = false};
const Architecture kDeepSeekV2Names = {.model_type = "deepseek_v2",
                                       .class_name = "DeepseekV2ForCausalLM",
                                       .name = "deepseek2",
                                       .groups = kDeepSeek,
                                       .experts = true,
                                       .latent = true,
                                       .routes = true,
                                       .scales_mlp = false};
const Architecture kPhi3Names = {.model_type = "phi3",
                                 .class_name = "Phi3ForCausalLM",
                                 .name = "phi3",
                                 .groups = kPhi3,
                                 .scales_mlp = false,
                                 .rotary = 1,
                                 .foreign = false};
const Architecture kGemma3TextNames = {.model_type = "gemma3_text",
                                       .class_name = "Gemma3ForCausalLM",
                                       .name = "gemma3",
                                       .groups = kGemma3,
                                       .scales_mlp = false,
                                       .activation = "gelu_pytorch_tanh",
                                       .numbers = kSlidingNumbers,
                                       .foreign = false};
const Architecture kGlm4MoeNames = {.model_type = "glm4_moe",
                                    .class_name = "Glm4MoeForCausalLM",
                                    .name = "glm4moe",
                                    .groups = kGlm4Moe,
                                    .experts = true,
                                    .routes = true,
                                    .sigmoid = true,
                                    .scales_mlp = false,
                                    .rotary = 0.5,
                                    .foreign = false};
const Architecture kMiniMaxM2Names = {.model_type = "minimax_m2",
                                      .class_name = "MiniMaxM2ForCausalLM",
                                      .name = "minimax-m2",
                                      .groups = kMiniMaxM2,
                                      .experts = true,
                                      .sigmoid = true,
                                      .normalizes = true,
                                      .scales_mlp = false,
                                      .rotary = 1,
                                      .foreign = false};
const Architecture kHunYuanDenseNames = {.model_type = "hunyuan_v1_dense",
                                         .class_name = "HunYuanDenseV1ForCausalLM",
                                         .name = "hunyuan-dense",
                                         .groups = kHunYuanDense,
                                         .scales_mlp = false,
                                         .foreign = false};
const Architecture kHunYuanMoeNames = {.model_type = "hunyuan_v1_moe",
                                       .class_name = "HunYuanMoEV1ForCausalLM",
                                       .name = "hunyuan-moe",
                                       .groups = kHunYuanMoe,
                                       .experts = true,
                                       .scales_mlp = false,
                                       .foreign = false};
const Architecture kQwen35Names =
    qwen35("qwen3_5", "Qwen3_5ForConditionalGeneration", "model.language_model.", false);
const Architecture kQwen35TextNames = qwen35("qwen3_5_text", "Qwen3_5ForCausalLM", "model.", false);
const Architecture kQwen35MoeNames =
    qwen35("qwen3_5_moe", "Qwen3_5MoeForConditionalGeneration", "model.language_model.", true);
const Architecture kQwen35MoeTextNames =
    qwen35("qwen3_5_moe_text", "Qwen3_5MoeForCausalLM", "model.", true);
const Architecture kNemotronHMoeNames = nemotron_h("nemotron_h_moe", kNemotronHMoe, true);
const Architecture kNemotronHNames = nemotron_h("nemotron_h", kNemotronH, false);
const Architecture kQwen3NextNames = {.model_type = "qwen3_next",
                                      .class_name = "Qwen3NextForCausalLM",
                                      .name = "qwen3next",
                                      .groups = kQwen3Next,
                                      .experts = true,
                                      .normalizes = true,
                                      .rotary = 0.25,
                                      .numbers = kLinearNumbers,
                                      .foreign = false};
const Architecture kGptOssNames = {.model_type = "gpt_oss",
                                   .class_name = "GptOssForCausalLM",
                                   .name = "gpt-oss",
                                   .groups = kGptOss,
                                   .experts = true,
                                   .scales_mlp = false,
                                   .numbers = kSlidingNumbers,
                                   .foreign = false};

}  // namespace nvfp4::gguf
