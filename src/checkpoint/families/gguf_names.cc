#include "checkpoint/families/gguf_names.h"

namespace nvfp4::gguf {
namespace {

constexpr bool kScaled = true;

using Group = std::span<const NamePair>;

constexpr NamePair kEnds[] = {{"model.embed_tokens", "token_embd"},
                              {"model.norm", "output_norm"},
                              {"lm_head", "output", kScaled}};
constexpr NamePair kNorms[] = {{"model.layers.{l}.input_layernorm", "blk.{l}.attn_norm"},
                               {"model.layers.{l}.post_attention_layernorm", "blk.{l}.ffn_norm"}};
constexpr NamePair kAttention[] = {
    {"model.layers.{l}.self_attn.q_proj", "blk.{l}.attn_q", kScaled},
    {"model.layers.{l}.self_attn.k_proj", "blk.{l}.attn_k", kScaled},
    {"model.layers.{l}.self_attn.v_proj", "blk.{l}.attn_v", kScaled},
    {"model.layers.{l}.self_attn.o_proj", "blk.{l}.attn_output", kScaled}};
constexpr NamePair kHeadNorms[] = {{"model.layers.{l}.self_attn.q_norm", "blk.{l}.attn_q_norm"},
                                   {"model.layers.{l}.self_attn.k_norm", "blk.{l}.attn_k_norm"}};
constexpr NamePair kLatentAttention[] = {
    {"model.layers.{l}.self_attn.q_proj", "blk.{l}.attn_q", kScaled},
    {"model.layers.{l}.self_attn.q_a_proj", "blk.{l}.attn_q_a"},
    {"model.layers.{l}.self_attn.q_a_layernorm", "blk.{l}.attn_q_a_norm"},
    {"model.layers.{l}.self_attn.q_b_proj", "blk.{l}.attn_q_b"},
    {"model.layers.{l}.self_attn.kv_a_proj_with_mqa", "blk.{l}.attn_kv_a_mqa"},
    {"model.layers.{l}.self_attn.kv_a_layernorm", "blk.{l}.attn_kv_a_norm"},
    {"model.layers.{l}.self_attn.kv_b_proj", "blk.{l}.attn_kv_b"},
    {"model.layers.{l}.self_attn.o_proj", "blk.{l}.attn_output", kScaled}};
constexpr NamePair kMlp[] = {{"model.layers.{l}.mlp.gate_proj", "blk.{l}.ffn_gate", kScaled},
                             {"model.layers.{l}.mlp.up_proj", "blk.{l}.ffn_up", kScaled},
                             {"model.layers.{l}.mlp.down_proj", "blk.{l}.ffn_down", kScaled}};
constexpr NamePair kExperts[] = {
    {"model.layers.{l}.mlp.gate", "blk.{l}.ffn_gate_inp"},
    {"model.layers.{l}.mlp.experts.{e}.gate_proj", "blk.{l}.ffn_gate_exps", kScaled},
    {"model.layers.{l}.mlp.experts.{e}.up_proj", "blk.{l}.ffn_up_exps", kScaled},
    {"model.layers.{l}.mlp.experts.{e}.down_proj", "blk.{l}.ffn_down_exps", kScaled}};
constexpr NamePair kSharedExpert[] = {
    {"model.layers.{l}.mlp.shared_expert_gate", "blk.{l}.ffn_gate_inp_shexp"},
    {"model.layers.{l}.mlp.shared_expert.gate_proj", "blk.{l}.ffn_gate_shexp", kScaled},
    {"model.layers.{l}.mlp.shared_expert.up_proj", "blk.{l}.ffn_up_shexp", kScaled},
    {"model.layers.{l}.mlp.shared_expert.down_proj", "blk.{l}.ffn_down_shexp", kScaled}};
constexpr NamePair kDeepSeekExperts[] = {
    {"model.layers.{l}.mlp.gate.e_score_correction_bias", "blk.{l}.exp_probs_b.bias"},
    {"model.layers.{l}.mlp.shared_experts.gate_proj", "blk.{l}.ffn_gate_shexp", kScaled},
    {"model.layers.{l}.mlp.shared_experts.up_proj", "blk.{l}.ffn_up_shexp", kScaled},
    {"model.layers.{l}.mlp.shared_experts.down_proj", "blk.{l}.ffn_down_shexp", kScaled}};
constexpr NamePair kMixtralExperts[] = {
    {"model.layers.{l}.block_sparse_moe.gate", "blk.{l}.ffn_gate_inp"},
    {"model.layers.{l}.block_sparse_moe.experts.{e}.w1", "blk.{l}.ffn_gate_exps", kScaled},
    {"model.layers.{l}.block_sparse_moe.experts.{e}.w2", "blk.{l}.ffn_down_exps", kScaled},
    {"model.layers.{l}.block_sparse_moe.experts.{e}.w3", "blk.{l}.ffn_up_exps", kScaled}};

constexpr Group kLlama[] = {kEnds, kNorms, kAttention, kMlp};
constexpr Group kMixtral[] = {kEnds, kNorms, kAttention, kMixtralExperts};
constexpr Group kQwen2Moe[] = {kEnds, kNorms, kAttention, kMlp, kExperts, kSharedExpert};
constexpr Group kQwen3[] = {kEnds, kNorms, kAttention, kHeadNorms, kMlp};
constexpr Group kQwen3Moe[] = {kEnds, kNorms, kAttention, kHeadNorms, kMlp, kExperts};
constexpr Group kDeepSeek[] = {kEnds, kNorms, kLatentAttention, kMlp, kExperts, kDeepSeekExperts};

}  // namespace

const Architecture kLlamaNames = {"llama", "LlamaForCausalLM", "llama", kLlama, true, false};
const Architecture kMistralNames = {"mistral", "MistralForCausalLM", "llama", kLlama, true, false};
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
