#pragma once

#include "checkpoint/families/family.h"

/// Modules that keep their dtype in any family, by name. The rules of single families are in
/// families.cc. tests/checkpoint/architectures_test.cc compares these tables with the module
/// classes of transformers.
namespace nvfp4::checkpoint {

inline constexpr std::string_view kVisionReason = "vision towers and projectors are sensitive";
inline constexpr std::string_view kAudioReason = "audio towers and projectors are sensitive";
inline constexpr std::string_view kNormReason = "norms are small and sensitive";
inline constexpr std::string_view kPlainReason = "loaders build it as a plain layer";
inline constexpr std::string_view kDecayReason = "small, and it decides what is forgotten";
inline constexpr std::string_view kModulationReason = "it scales every activation";
inline constexpr std::string_view kRouterReason = "routers and gates decide by small differences";
inline constexpr std::string_view kHeadReason = "it makes the model's outputs";
inline constexpr std::string_view kInputReason = "it takes the model's inputs in";

/// Parts of names that exclude tensors of any shape.
inline constexpr NameRule kTowers[] = {
    {"vision", kVisionReason, Where::any,
     "visual* vision* vit vpm *projector resampler* image_encoder img_processor img_projection "
     "patch_merge* modality_projection sam_model mlp_AR embed_vision aligner connector "
     "image_newline vte"},
    {"vision", kVisionReason, Where::first, "mlp1"},
    {"audio", kAudioReason, Where::any,
     "audio* speech* sound_encoder whisper_encoder embed_audio apm talker token2wav code2wav"},
};

/// Names of norms, and of the projections that make the scales of an adaptive norm.
inline constexpr NameRule kNorms[] = {
    {"", "", Where::any, "normals_head"},  // a head for surface normals
    {"norm", kNormReason, Where::last, "*norm* *Norm* ln ln_* *_ln *norm*.scale *norm*.shift"},
    {"modulation", kModulationReason, Where::last, "*norm*.*lin* *norm*.W_down *norm*.W_up"},
};

/// Names of stacked experts that some loader reads with 4-bit experts.
inline constexpr std::string_view kStackedExperts =
    "experts.gate_up_proj experts.gate_proj experts.up_proj experts.down_proj experts.w1 "
    "experts.w2 experts.w3";
/// Names of stacked experts that vLLM reads with 4-bit experts for families whose stacks are rows.
inline constexpr std::string_view kMoeStackedExperts = "moe.gate_proj moe.up_proj moe.down_proj";
/// Other names of stacked experts. No loader reads 4-bit experts with these names.
inline constexpr std::string_view kOtherStackedExperts =
    "input_linear output_linear experts.* experts.mlp.* *_experts.* moe.gate_proj moe.up_proj "
    "moe.down_proj";

/// Weights of convolutions that are stored as matrices. Other convolutions have three dimensions.
inline constexpr std::string_view kConvolutions = "conv *_conv *conv1d *conv2d";

/// Names of GPT-2's Conv1D, a linear layer that stores [in, out].
inline constexpr std::string_view kConv1dNames = "c_attn c_proj c_fc q_attn";

/// Gates of linear attention, with a few rows for each head. Loaders fuse them only with each
/// other.
inline constexpr std::string_view kDecays =
    "linear_attn.in_proj_a linear_attn.in_proj_b linear_attn.in_proj_ba linear_attn.a_proj "
    "linear_attn.b_proj *lstm*.igate_preact *lstm*.fgate_preact";

/// Projections to the keys and values of multi-head latent attention.
inline constexpr std::string_view kLatentProjections = "kv_b_proj wkv_b";

/// Rules for matrices and vectors. The first rule that fits decides.
inline constexpr NameRule kModules[] = {
    {"lm_head", "loaders expect an unquantized output head", Where::last,
     "lm_head embed_out unembed head score classifier qa_outputs *_head.decoder head.decoder "
     "predictions.decoder output_projection logits_dense transformer.ff_out *final_layer.linear "
     "*final_layer.*.linear bpe_head wp_head char_head "
     "pred_layer.proj log_softmax.mlp.layer0 lm_loss"},
    {"lm_head", "loaders expect an unquantized output head", Where::whole,
     "output *.output output_layer *.output_layer proj_out cls decoder"},
    {"mtp", kPlainReason, Where::last, "eh_proj mtp_linear_proj mtp_linear_proj.*"},
    {"router", kRouterReason, Where::last,
     "gate router *router* *router*.* shared_expert_gate switch gate.wg"},
    {"", "", Where::last,
     "modulation.projection_in modulation.projection_out"},  // FocalNet's blocks
    {"modulation", kModulationReason, Where::last,
     "*modulation* *modulation*.* adaLN* adaLN*.* img_mod txt_mod img_mod.* txt_mod.*"},
    {"embedding", "a table, not the weight of a GEMM", Where::last,
     "wte wpe shared transformer.w embed_tokens embed_tokens_per_layer embed_positions embed_in "
     "tok_embeddings word_embeddings *position_embeddings position_embedding embeddings embedding "
     "*token_embedding *token_type_embeddings* pos_embed query_embed level_embed "
     "relative_attention_bias rel_pos_emb pos_emb segment_emb freq_emb *_token *_tokens "
     "query_feat queries_features codebook",
     false},
    {"embedding", "a table, not the weight of a GEMM", Where::whole, "query", false},
    {"head", kHeadReason, Where::last, "class_embed *_class_embed predict_*"},
    {"head", kHeadReason, Where::any, "class_embed bbox_embed *_class_embed *_bbox_embed"},
    {"embedding", kInputReason, Where::last3, "*embed*"},
    {"embedding", kInputReason, Where::any,
     "condition_embedder img_in txt_in time_in vector_in guidance_in"},
    {"embedding", kInputReason, Where::last, "rel_pos_bias rel_pos_x_bias rel_pos_y_bias"},
    {"latent attention", "loaders take it apart, and multiply by its halves", Where::last,
     kLatentProjections},
    {"mamba", kPlainReason, Where::last, "mixer.x_proj mixer.dt_proj mamba.x_proj mamba.dt_proj"},
    {"decay", kDecayReason, Where::last, kDecays},
    {"adapter", "a thin matrix of an adapter", Where::any, "lora_A* lora_B*"},
    {"indexer", "loaders expect an unquantized sparse attention indexer", Where::any, "indexer"},
    {"", "", Where::last, "q_head k_head v_head"},  // Funnel's projections
    {"head", kHeadReason, Where::any,
     "*_head *_heads head heads classifier *_classifier classifier_* class_predictor qa_outputs "
     "score predictions *_predictions cls pooler *_pooler sequence_summary splinter_qass"},
};

}  // namespace nvfp4::checkpoint
