#include "checkpoint/families/gguf_rows.h"

namespace nvfp4::gguf {
namespace {

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
    {.model = "model.layers.{l}.self_attn.kv_b_proj",
     .file = "blk.{l}.attn_k_b",
     .shape = {heads, latent, latent_key},
     .heads = Heads::latent_keys},
    {.model = "model.layers.{l}.self_attn.kv_b_proj",
     .file = "blk.{l}.attn_v_b",
     .shape = {heads, latent_value, latent},
     .heads = Heads::latent_values},
    {"model.layers.{l}.self_attn.o_proj", "blk.{l}.attn_output", {embedding, outputs}, kScaled}};
constexpr NamePair kIndexer[] = {
    {"model.layers.{l}.self_attn.indexer.wq_b",
     "blk.{l}.indexer.attn_q_b",
     {indexer_queries, query_rank}},
    {"model.layers.{l}.self_attn.indexer.wk", "blk.{l}.indexer.attn_k", {indexer_head, embedding}},
    {"model.layers.{l}.self_attn.indexer.k_norm", "blk.{l}.indexer.k_norm", {indexer_head}},
    {"model.layers.{l}.self_attn.indexer.weights_proj",
     "blk.{l}.indexer.proj",
     {indexer_heads, embedding}}};
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
constexpr NamePair kShiftedMlpNorms[] = {
    shifted("model.layers.{l}.pre_feedforward_layernorm", "blk.{l}.ffn_norm", embedding),
    shifted("model.layers.{l}.post_feedforward_layernorm", "blk.{l}.post_ffw_norm", embedding)};
constexpr NamePair kGemma4Ends[] = {
    {"model.embed_tokens_per_layer", "per_layer_token_embd", {vocabulary, all_layer_inputs}},
    {"model.per_layer_model_projection", "per_layer_model_proj", {all_layer_inputs, embedding}},
    {"model.per_layer_projection_norm", "per_layer_proj_norm", {layer_input}}};
constexpr NamePair kGemma4Layer[] = {
    {"model.layers.{l}.input_layernorm", "blk.{l}.attn_norm", {embedding}},
    {"model.layers.{l}.post_attention_layernorm", "blk.{l}.post_attention_norm", {embedding}},
    {"model.layers.{l}.pre_feedforward_layernorm", "blk.{l}.ffn_norm", {embedding}},
    {"model.layers.{l}.post_feedforward_layernorm", "blk.{l}.post_ffw_norm", {embedding}},
    {"model.layers.{l}.self_attn.q_norm", "blk.{l}.attn_q_norm", {head}},
    {"model.layers.{l}.self_attn.q_proj", "blk.{l}.attn_q", {queries, embedding}, kScaled},
    {"model.layers.{l}.self_attn.o_proj", "blk.{l}.attn_output", {embedding, outputs}, kScaled}};
// Layers may have the keys and values of another layer, or values that are the keys.
constexpr NamePair kGemma4Keys[] = {
    {"model.layers.{l}.self_attn.k_norm", "blk.{l}.attn_k_norm", {head}},
    {"model.layers.{l}.self_attn.k_proj", "blk.{l}.attn_k", {keys, embedding}, kScaled}};
constexpr NamePair kGemma4Optional[] = {
    {"model.layers.{l}.self_attn.v_proj", "blk.{l}.attn_v", {values, embedding}, kScaled},
    {"model.layers.{l}.layer_scalar", "blk.{l}.layer_output_scale.weight", {one}}};
constexpr NamePair kGemma4Inputs[] = {
    {"model.layers.{l}.per_layer_input_gate", "blk.{l}.inp_gate", {layer_input, embedding}},
    {"model.layers.{l}.per_layer_projection", "blk.{l}.proj", {embedding, layer_input}},
    {"model.layers.{l}.post_per_layer_input_norm", "blk.{l}.post_norm", {embedding}}};
// The scale of ffn_down_exps is the router's, so those experts cannot have one of NVFP4.
constexpr NamePair kGemma4Experts[] = {
    {"model.layers.{l}.router.proj", "blk.{l}.ffn_gate_inp", {experts, embedding}},
    {"model.layers.{l}.router.scale", "blk.{l}.ffn_gate_inp.scale", {embedding}},
    {"model.layers.{l}.router.per_expert_scale", "blk.{l}.ffn_down_exps.scale", {experts}},
    {"model.layers.{l}.experts.{e}.gate_proj", "blk.{l}.ffn_gate_exps", kUps, kScaled},
    {"model.layers.{l}.experts.{e}.up_proj", "blk.{l}.ffn_up_exps", kUps, kScaled},
    {"model.layers.{l}.experts.{e}.down_proj", "blk.{l}.ffn_down_exps", kDowns},
    {"model.layers.{l}.pre_feedforward_layernorm_2", "blk.{l}.pre_ffw_norm_2", {embedding}},
    {"model.layers.{l}.post_feedforward_layernorm_1", "blk.{l}.post_ffw_norm_1", {embedding}},
    {"model.layers.{l}.post_feedforward_layernorm_2", "blk.{l}.post_ffw_norm_2", {embedding}}};

constexpr NamePair kPrediction[] = {
    {"model.layers.{l}.eh_proj", "blk.{l}.nextn.eh_proj", {embedding, embedding_pair}, kScaled},
    {"model.layers.{l}.enorm", "blk.{l}.nextn.enorm", {embedding}},
    {"model.layers.{l}.hnorm", "blk.{l}.nextn.hnorm", {embedding}}};
constexpr NamePair kPredictionHead[] = {
    {"model.layers.{l}.embed_tokens", "blk.{l}.nextn.embed_tokens", {vocabulary, embedding}},
    {"model.layers.{l}.shared_head.head",
     "blk.{l}.nextn.shared_head_head",
     {vocabulary, embedding},
     kScaled},
    {"model.layers.{l}.shared_head.norm", "blk.{l}.nextn.shared_head_norm", {embedding}}};

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
                                   {kPlainHead, optional},
                                   {kNorms},
                                   {kQueries, full_rank},
                                   {kLowRankQueries, low_rank},
                                   {kLatent},
                                   {kMlp, dense},
                                   {kExperts, sparse},
                                   {kRouterBias, together},
                                   {kSharedExperts, shared}};
constexpr NameGroup kGlmMoeDsa[] = {{kEnds},
                                    {kPlainHead, optional},
                                    {kNorms},
                                    {kLowRankQueries},
                                    {kLatent},
                                    {kIndexer, complete},
                                    {kMlp, dense},
                                    {kExperts, sparse},
                                    {kRouterBias, together},
                                    {kSharedExperts, shared},
                                    {kPrediction, complete},
                                    {kPredictionHead, optional}};
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
                                  {kSharedExperts, shared},
                                  {kPrediction, complete},
                                  {kPredictionHead, optional}};
constexpr NameGroup kMiniMaxM2[] = {{kEnds},      {kHead},           {kNorms},
                                    {kAttention}, {kMixtralExperts}, {kMiniMaxRows}};
constexpr NameGroup kHunYuanDense[] = {{kEnds},      {kHead, optional}, {kNorms},
                                       {kAttention}, {kHunYuanNorms},   {kMlp, dense}};
constexpr NameGroup kHunYuanMoe[] = {{kEnds},      {kHead, optional}, {kNorms},
                                     {kAttention}, {kHunYuanNorms},   {kHunYuanExperts}};
constexpr NameGroup kGemma4[] = {{kEnds},
                                 {kHead, optional},
                                 {kGemma4Ends, complete},
                                 {kGemma4Layer},
                                 {kGemma4Keys, complete},
                                 {kGemma4Optional, optional},
                                 {kGemma4Inputs, complete},
                                 {kMlp}};
constexpr NameGroup kGemma4Moe[] = {{kEnds},
                                    {kHead, optional},
                                    {kGemma4Ends, complete},
                                    {kGemma4Layer},
                                    {kGemma4Keys, complete},
                                    {kGemma4Optional, optional},
                                    {kGemma4Inputs, complete},
                                    {kMlp},
                                    {kGemma4Experts}};
constexpr NameGroup kGptOss[] = {{kEnds}, {kHead}, {kSecondNorms}, {kAttention}, {kGptOssLayer}};
constexpr NumberKey kGraniteNumbers[] = {{"attention_multiplier", "attention.scale", kFactor},
                                         {"embedding_multiplier", "embedding_scale", kFactor},
                                         {"residual_multiplier", "residual_scale", kFactor},
                                         {"logits_scaling", "logit_scale", kFactor}};
constexpr NumberKey kIndexerNumbers[] = {{"index_n_heads", "attention.indexer.head_count"},
                                         {"index_head_dim", "attention.indexer.key_length"},
                                         {"index_topk", "attention.indexer.top_k"}};
constexpr NumberKey kSlidingNumbers[] = {{"sliding_window", "attention.sliding_window"}};

/// Returns the row of a Gemma 3 model without or with the prefix of models that also see.
constexpr Architecture gemma3(std::string_view model_type, std::string_view class_name,
                              std::string_view prefix) {
  return {.model_type = model_type,
          .class_name = class_name,
          .name = "gemma3",
          .groups = kGemma3,
          .prefix = prefix,
          .scales_mlp = false,
          .activation = "gelu_pytorch_tanh",
          .numbers = kSlidingNumbers,
          .foreign = false};
}

/// Returns the row of a Gemma 4 model, also with experts.
constexpr Architecture gemma4(std::string_view model_type, std::string_view class_name,
                              std::string_view prefix, bool experts) {
  return {.model_type = model_type,
          .class_name = class_name,
          .name = "gemma4",
          .groups = experts ? std::span<const NameGroup>(kGemma4Moe) : kGemma4,
          .prefix = prefix,
          .experts = experts,
          .rotary = 1,
          .activation = "gelu_pytorch_tanh",
          .numbers = kSlidingNumbers,
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
const Architecture kGemma3TextNames = gemma3("gemma3_text", "Gemma3ForCausalLM", "model.");
const Architecture kGemma3Names =
    gemma3("gemma3", "Gemma3ForConditionalGeneration", "language_model.model.");
const Architecture kGemma4TextMoeNames = gemma4("gemma4_text", "Gemma4ForCausalLM", "model.", true);
const Architecture kGemma4TextNames = gemma4("gemma4_text", "Gemma4ForCausalLM", "model.", false);
const Architecture kGemma4MoeNames =
    gemma4("gemma4", "Gemma4ForConditionalGeneration", "model.language_model.", true);
const Architecture kGemma4Names =
    gemma4("gemma4", "Gemma4ForConditionalGeneration", "model.language_model.", false);
const Architecture kGlm4MoeNames = {.model_type = "glm4_moe",
                                    .class_name = "Glm4MoeForCausalLM",
                                    .name = "glm4moe",
                                    .groups = kGlm4Moe,
                                    .experts = true,
                                    .routes = true,
                                    .sigmoid = true,
                                    .scales_mlp = false,
                                    .rotary = 0.5,
                                    .predicts = true,
                                    .foreign = false};
const Architecture kGlmMoeDsaNames = {.model_type = "glm_moe_dsa",
                                      .class_name = "GlmMoeDsaForCausalLM",
                                      .name = "glm-dsa",
                                      .groups = kGlmMoeDsa,
                                      .experts = true,
                                      .latent = true,
                                      .routes = true,
                                      .sigmoid = true,
                                      .numbers = kIndexerNumbers,
                                      .predicts = true,
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
const Architecture kGptOssNames = {.model_type = "gpt_oss",
                                   .class_name = "GptOssForCausalLM",
                                   .name = "gpt-oss",
                                   .groups = kGptOss,
                                   .experts = true,
                                   .scales_mlp = false,
                                   .numbers = kSlidingNumbers,
                                   .foreign = false};

}  // namespace nvfp4::gguf
