#include "checkpoint/families/gguf_names.h"

namespace nvfp4::gguf {
namespace {

using enum Size;
using enum Presence;

constexpr bool kScaled = true;

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
    {"model.layers.{l}.self_attn.q_proj", "blk.{l}.attn_q", {queries, embedding}, kScaled}};
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

constexpr FactorKey kGraniteFactors[] = {{"attention_multiplier", "attention.scale"},
                                         {"embedding_multiplier", "embedding_scale"},
                                         {"residual_multiplier", "residual_scale"},
                                         {"logits_scaling", "logit_scale"}};

}  // namespace

const Architecture kLlamaNames = {"llama", "LlamaForCausalLM", "llama", kLlama, true, false};
const Architecture kMistralNames = {"mistral", "MistralForCausalLM", "llama", kLlama, true, false};
const Architecture kGraniteNames = {
    "granite", "GraniteForCausalLM", "granite", kLlama, true, false, false, false,
    {},        kGraniteFactors};
const Architecture kMixtralNames = {"mixtral", "MixtralForCausalLM", "llama", kMixtral, true, true};
const Architecture kQwen2Names = {"qwen2", "Qwen2ForCausalLM", "qwen2", kLlama, false, false};
const Architecture kQwen2MoeNames = {
    "qwen2_moe", "Qwen2MoeForCausalLM", "qwen2moe", kQwen2Moe, false, true, false, false, false};
const Architecture kQwen3Names = {"qwen3", "Qwen3ForCausalLM", "qwen3", kQwen3, false, false};
const Architecture kQwen3MoeNames = {
    "qwen3_moe", "Qwen3MoeForCausalLM", "qwen3moe", kQwen3Moe, false, true, false, false, true};
const Architecture kDeepSeekV3Names = {
    "deepseek_v3", "DeepseekV3ForCausalLM", "deepseek2", kDeepSeek, false, true, true, true};
const Architecture kDeepSeekV2Names = {
    "deepseek_v2", "DeepseekV2ForCausalLM", "deepseek2", kDeepSeek, false, true, true};

}  // namespace nvfp4::gguf
