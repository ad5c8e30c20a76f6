// Families with linear attention or Mamba.
#include "checkpoint/families/gguf_rows.h"

namespace nvfp4::gguf {
namespace {

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
constexpr NamePair kMixerPrediction[] = {
    {"model.layers.{l}.eh_proj", "blk.{l}.nextn.eh_proj", {embedding, embedding_pair}, kScaled},
    {"model.layers.{l}.enorm", "blk.{l}.nextn.enorm", {embedding}},
    {"model.layers.{l}.hnorm", "blk.{l}.nextn.hnorm", {embedding}},
    {"model.layers.{l}.shared_head.norm", "blk.{l}.nextn.shared_head_norm", {embedding}},
    {"model.layers.{l}.post_attention_layernorm", "blk.{l}.post_attention_norm", {embedding}}};
constexpr NamePair kShiftedPrediction[] = {
    {"model.layers.{l}.eh_proj", "blk.{l}.nextn.eh_proj", {embedding, embedding_pair}, kScaled},
    shifted("model.layers.{l}.enorm", "blk.{l}.nextn.enorm", embedding),
    shifted("model.layers.{l}.hnorm", "blk.{l}.nextn.hnorm", embedding),
    shifted("model.layers.{l}.shared_head.norm", "blk.{l}.nextn.shared_head_norm", embedding)};
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
constexpr NameGroup kNemotronH[] = {
    {kNemotronEnds},    {kHead, optional},           {kNemotronNorm},
    {kMamba, complete}, {kMixerAttention, complete}, {kMixerMlp, complete}};
constexpr NameGroup kNemotronHMoe[] = {
    {kNemotronEnds},          {kHead, optional},           {kNemotronNorm},
    {kMamba, complete},       {kMixerAttention, complete}, {kMixerExperts, complete},
    {kMixerLatent, complete}, {kMixerPrediction, complete}};
constexpr NameGroup kQwen3Next[] = {{kShiftedEnds},
                                    {kHead, optional},
                                    {kShiftedNorms},
                                    {kGroupedLinearAttention, linear},
                                    {kGatedAttention, quadratic},
                                    {kShiftedHeadNorms, quadratic},
                                    {kExperts},
                                    {kSharedExpert},
                                    {kShiftedPrediction, complete}};
constexpr NameGroup kQwen35[] = {{kShiftedEnds},
                                 {kHead, optional},
                                 {kShiftedNorms},
                                 {kLinearAttention, linear},
                                 {kGatedAttention, quadratic},
                                 {kShiftedHeadNorms, quadratic},
                                 {kMlp, dense},
                                 {kShiftedPrediction, complete}};
constexpr NameGroup kQwen35Moe[] = {{kShiftedEnds},
                                    {kHead, optional},
                                    {kShiftedNorms},
                                    {kLinearAttention, linear},
                                    {kGatedAttention, quadratic},
                                    {kShiftedHeadNorms, quadratic},
                                    {kExperts},
                                    {kSharedExpert},
                                    {kShiftedPrediction, complete}};
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
          .epsilon = {"layer_norm_epsilon", "attention.layer_norm_epsilon"},
          .default_epsilon = 1e-5,
          .predicts = experts,  // llama.cpp drops the module of others
          .prediction = experts ? std::span<const PredictionName>(kNemotronPrediction)
                                : std::span<const PredictionName>(),
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
          .predicts = true,
          .prediction = kQwenPrediction,
          .foreign = false};
}

}  // namespace

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
                                      .predicts = true,
                                      .prediction = kQwenPrediction,
                                      .foreign = false};

}  // namespace nvfp4::gguf
