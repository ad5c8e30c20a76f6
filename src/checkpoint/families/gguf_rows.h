#pragma once

#include "checkpoint/families/gguf_names.h"

/// The rows that several families have.
namespace nvfp4::gguf {

using enum Size;
using enum Presence;

inline constexpr bool kScaled = true;
inline constexpr bool kFactor = true;
inline constexpr Shape kUp = {feed_forward, embedding}, kDown = {embedding, feed_forward},
                       kUps = {experts, expert_size, embedding},
                       kDowns = {experts, embedding, expert_size},
                       kWideUps = {experts, feed_forward, embedding},
                       kWideDowns = {experts, embedding, feed_forward},
                       kUpOne = {shared_size, embedding}, kDownOne = {embedding, shared_size};
inline constexpr NamePair kEnds[] = {{"model.embed_tokens", "token_embd", {vocabulary, embedding}},
                                     {"model.norm", "output_norm", {embedding}}};
inline constexpr NamePair kHead[] = {{"lm_head", "output", {vocabulary, embedding}, kScaled}};
/// The head of graphs that apply no scale to it.
inline constexpr NamePair kPlainHead[] = {{"lm_head", "output", {vocabulary, embedding}}};
inline constexpr NamePair kNorms[] = {
    {"model.layers.{l}.input_layernorm", "blk.{l}.attn_norm", {embedding}},
    {"model.layers.{l}.post_attention_layernorm", "blk.{l}.ffn_norm", {embedding}}};
inline constexpr NamePair kAttention[] = {
    {"model.layers.{l}.self_attn.q_proj", "blk.{l}.attn_q", {queries, embedding}, kScaled},
    {"model.layers.{l}.self_attn.k_proj", "blk.{l}.attn_k", {keys, embedding}, kScaled},
    {"model.layers.{l}.self_attn.v_proj", "blk.{l}.attn_v", {values, embedding}, kScaled},
    {"model.layers.{l}.self_attn.o_proj", "blk.{l}.attn_output", {embedding, outputs}, kScaled}};
inline constexpr NamePair kHeadNorms[] = {
    {"model.layers.{l}.self_attn.q_norm", "blk.{l}.attn_q_norm", {head}},
    {"model.layers.{l}.self_attn.k_norm", "blk.{l}.attn_k_norm", {head}}};
inline constexpr NamePair kMlp[] = {
    {"model.layers.{l}.mlp.gate_proj", "blk.{l}.ffn_gate", kUp, kScaled},
    {"model.layers.{l}.mlp.up_proj", "blk.{l}.ffn_up", kUp, kScaled},
    {"model.layers.{l}.mlp.down_proj", "blk.{l}.ffn_down", kDown, kScaled}};
inline constexpr NamePair kExperts[] = {
    {"model.layers.{l}.mlp.gate", "blk.{l}.ffn_gate_inp", {experts, embedding}},
    {"model.layers.{l}.mlp.experts.{e}.gate_proj", "blk.{l}.ffn_gate_exps", kUps, kScaled},
    {"model.layers.{l}.mlp.experts.{e}.up_proj", "blk.{l}.ffn_up_exps", kUps, kScaled},
    {"model.layers.{l}.mlp.experts.{e}.down_proj", "blk.{l}.ffn_down_exps", kDowns, kScaled}};
inline constexpr NamePair kSharedExpert[] = {
    {"model.layers.{l}.mlp.shared_expert_gate", "blk.{l}.ffn_gate_inp_shexp", {one, embedding}},
    {"model.layers.{l}.mlp.shared_expert.gate_proj", "blk.{l}.ffn_gate_shexp", kUpOne, kScaled},
    {"model.layers.{l}.mlp.shared_expert.up_proj", "blk.{l}.ffn_up_shexp", kUpOne, kScaled},
    {"model.layers.{l}.mlp.shared_expert.down_proj", "blk.{l}.ffn_down_shexp", kDownOne, kScaled}};
/// Returns the row of a norm that multiplies by 1 + weight.
inline constexpr NamePair shifted(std::string_view model, std::string_view file, Size size) {
  return {.model = model, .file = file, .shape = {size}, .change = Change::plus_one};
}
inline constexpr NamePair kShiftedEnds[] = {
    {"model.embed_tokens", "token_embd", {vocabulary, embedding}},
    shifted("model.norm", "output_norm", embedding)};
inline constexpr NamePair kShiftedHeadNorms[] = {
    shifted("model.layers.{l}.self_attn.q_norm", "blk.{l}.attn_q_norm", head),
    shifted("model.layers.{l}.self_attn.k_norm", "blk.{l}.attn_k_norm", head)};
inline constexpr NamePair kShiftedNorms[] = {
    shifted("model.layers.{l}.input_layernorm", "blk.{l}.attn_norm", embedding),
    shifted("model.layers.{l}.post_attention_layernorm", "blk.{l}.post_attention_norm", embedding)};

}  // namespace nvfp4::gguf
