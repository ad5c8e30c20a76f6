#pragma once

#include <string_view>

/// The linear layers whose weight `_init_weights` reads, for each type in transformers 5.23.
/// compressed-tensors 0.20 removes that weight before, so loading stops. Source: loading models,
/// and tools/transformers_init.py.
namespace nvfp4::checkpoint {

struct LayersOfType {
  std::string_view model_type;
  std::string_view layers;  ///< last components of their names
};

inline constexpr LayersOfType kInitReads[] = {
    {"afmoe", "gate"},
    {"align", "text_projection"},
    {"altclip", "text_projection visual_projection q_proj k_proj v_proj out_proj fc1 fc2"},
    {"altclip_vision_model", "k_proj v_proj q_proj out_proj fc1 fc2"},
    {"bit", "1"},
    {"blt",
     "q_proj k_proj v_proj o_proj gate_proj up_proj down_proj patch_embedding_projection lm_head"},
    {"blt_global_transformer", "q_proj k_proj v_proj o_proj gate_proj up_proj down_proj"},
    {"blt_local_decoder",
     "q_proj k_proj v_proj o_proj gate_proj up_proj down_proj patch_embedding_projection"},
    {"blt_local_encoder",
     "q_proj k_proj v_proj o_proj gate_proj up_proj down_proj patch_embedding_projection"},
    {"blt_patcher", "q_proj k_proj v_proj o_proj gate_proj up_proj down_proj lm_head"},
    {"bridgetower",
     "cross_modal_text_transform cross_modal_image_transform c_fc c_proj query key value dense "
     "out_proj"},
    {"bridgetower_text_model", "query key value dense"},
    {"bridgetower_vision_model", "out_proj c_fc c_proj"},
    {"chinese_clip", "text_projection visual_projection q_proj k_proj v_proj out_proj fc1 fc2"},
    {"chinese_clip_vision_model", "q_proj k_proj v_proj out_proj fc1 fc2"},
    {"chmv2", "0"},
    {"clap", "query key value dense linear1 linear2 reduction"},
    {"clap_audio_model", "query key value dense reduction"},
    {"clap_text_model", "query key value dense"},
    {"clipseg", "text_projection visual_projection q_proj k_proj v_proj out_proj fc1 fc2"},
    {"clipseg_text_model", "k_proj v_proj q_proj out_proj fc1 fc2"},
    {"clipseg_vision_model", "k_proj v_proj q_proj out_proj fc1 fc2"},
    {"clvp", "k_proj v_proj q_proj out_proj proj fc2 projection"},
    {"clvp_decoder", "k_proj v_proj q_proj out_proj lm_head"},
    {"clvp_encoder", "projection k_proj v_proj q_proj out_proj proj fc2"},
    {"cvt", "projection_query projection_key projection_value dense classifier"},
    {"d_fine", "enc_score_head sampling_offsets attention_weights gate"},
    {"data2vec-audio", "projection"},
    {"deformable_detr",
     "sampling_offsets attention_weights value_proj output_proj reference_points"},
    {"deimv2",
     "enc_score_head sampling_offsets attention_weights gate_proj up_proj down_proj gate"},
    {"depth_pro", "q_proj k_proj v_proj o_proj fc1 fc2"},
    {"dinov2", "q_proj k_proj v_proj o_proj fc1 fc2 classifier"},
    {"dinov2_with_registers", "q_proj k_proj v_proj o_proj fc1 fc2 classifier"},
    {"dinov3_vit", "k_proj v_proj q_proj o_proj up_proj down_proj"},
    {"efficientnet", "classifier"},
    {"emu3_vqgan", "k_proj v_proj q_proj out_proj"},
    {"eomt", "k_proj v_proj q_proj out_proj fc1 fc2 fc3 class_predictor"},
    {"falcon", "query_key_value dense dense_h_to_4h dense_4h_to_h"},
    {"falcon_mamba", "dt_proj out_proj"},
    {"fastspeech2_conformer", "linear_q linear_k linear_v linear_out linear_pos linear feat_out"},
    {"gpt_bigcode", "c_proj"},
    {"grounding-dino",
     "vision_proj text_proj values_vision_proj values_text_proj out_vision_proj out_text_proj "
     "sampling_offsets attention_weights value_proj output_proj 1 2"},
    {"groupvit", "q_proj k_proj v_proj out_proj fc1 fc2"},
    {"groupvit_text_model", "k_proj v_proj q_proj out_proj fc1 fc2"},
    {"hiera", "qkv proj fc1 fc2 classifier"},
    {"ijepa", "q_proj k_proj v_proj o_proj fc1 fc2 classifier"},
    {"kosmos-2", "q_proj k_proj v_proj out_proj fc1 fc2 dense"},
    {"kosmos_2_text_model", "lm_head k_proj v_proj q_proj out_proj fc1 fc2"},
    {"kosmos_2_vision_model", "k_proj v_proj q_proj out_proj fc1 fc2"},
    {"longcat_flash", "classifier"},
    {"longt5", "q k v o wi wi_0 wi_1 wo"},
    {"lw_detr",
     "q_proj k_proj v_proj o_proj fc1 fc2 sampling_offsets attention_weights value_proj "
     "output_proj"},
    {"lw_detr_vit", "q_proj k_proj v_proj o_proj fc1 fc2"},
    {"mamba", "dt_proj out_proj"},
    {"mamba2", "out_proj"},
    {"mask2former", "sampling_offsets attention_weights value_proj output_proj 0"},
    {"maskformer", "0"},
    {"mgp-str", "qkv proj fc1 fc2 char_head bpe_head wp_head"},
    {"mlcd", "q_proj k_proj v_proj out_proj fc1 fc2"},
    {"mlcd_vision_model", "q_proj k_proj v_proj out_proj fc1 fc2"},
    {"mm-grounding-dino",
     "vision_proj text_proj values_vision_proj values_text_proj out_vision_proj out_text_proj "
     "sampling_offsets attention_weights value_proj output_proj 1 2"},
    {"modernbert", "decoder Wqkv Wo Wi dense classifier"},
    {"modernbert-decoder", "decoder q_proj k_proj v_proj Wo Wi dense classifier"},
    {"modernvbert", "modality_projection lm_head classifier"},
    {"mt5", "q k v o wi wi_0 wi_1 wo qa_outputs dense out_proj classifier"},
    {"musicgen_melody", "enc_to_dec_proj audio_enc_to_dec_proj"},
    {"nanochat", "o_proj"},
    {"neomme", "o_proj down_proj lm_head"},
    {"neucodec", "projection"},
    {"omdet-turbo", "fc1 fc2 0"},
    {"oneformer", "sampling_offsets attention_weights value_proj output_proj"},
    {"owlv2", "text_projection visual_projection q_proj k_proj v_proj out_proj fc1 fc2"},
    {"owlv2_text_model", "k_proj v_proj q_proj out_proj fc1 fc2"},
    {"owlv2_vision_model", "k_proj v_proj q_proj out_proj fc1 fc2"},
    {"owlvit", "text_projection visual_projection q_proj k_proj v_proj out_proj fc1 fc2"},
    {"owlvit_text_model", "k_proj v_proj q_proj out_proj fc1 fc2"},
    {"owlvit_vision_model", "k_proj v_proj q_proj out_proj fc1 fc2"},
    {"pe_audio", "Wqkv Wo Wi"},
    {"phi4_multimodal_vision", "k_proj v_proj q_proj out_proj fc1 fc2"},
    {"phimoe", "router"},
    {"pix2struct", "patch_projection query key value output wi_0 wi_1 wo"},
    {"pix2struct_text_model", "lm_head query key value output wi_0 wi_1 wo"},
    {"pix2struct_vision_model", "patch_projection query key value output wi_0 wi_1 wo"},
    {"pop2piano", "q k v o wi wi_0 wi_1 wo lm_head"},
    {"pp_doclayout_v2", "enc_score_head sampling_offsets attention_weights value_proj output_proj"},
    {"pp_doclayout_v3",
     "enc_score_head class_embed sampling_offsets attention_weights value_proj output_proj"},
    {"pp_doclayout_v4",
     "enc_score_head sampling_offsets attention_weights value_proj output_proj 0 1 2 3 4"},
    {"pvt", "query key value dense dense1 dense2 classifier"},
    {"pvt_v2", "query key value proj dense1 dense2 classifier"},
    {"radio", "patch_projection q_proj k_proj v_proj o_proj fc1 fc2 video_patch_projection"},
    {"recurrent_gemma",
     "linear_x linear_y linear_out gate_proj up_proj down_proj q_proj k_proj v_proj o_proj "
     "lm_head"},
    {"regnet", "1"},
    {"resnet", "1"},
    {"rf_detr",
     "q_proj k_proj v_proj o_proj fc1 fc2 sampling_offsets attention_weights value_proj "
     "output_proj"},
    {"rf_detr_dinov2", "q_proj k_proj v_proj o_proj fc1 fc2"},
    {"rt_detr", "enc_score_head sampling_offsets attention_weights value_proj output_proj"},
    {"rt_detr_v2", "enc_score_head sampling_offsets attention_weights value_proj output_proj"},
    {"rwkv", "key value receptance output head"},
    {"sam3_lite_text", "projection"},
    {"sam3_lite_text_text_model", "projection"},
    {"sapiens2", "q_proj o_proj k_proj v_proj gate_proj up_proj down_proj"},
    {"seamless_m4t", "projection"},
    {"seamless_m4t_v2", "projection"},
    {"seggpt", "qkv proj lin1 lin2"},
    {"siglip", "q_proj k_proj v_proj out_proj fc1 fc2 head classifier"},
    {"siglip2", "q_proj k_proj v_proj out_proj fc1 fc2 head patch_embedding classifier"},
    {"siglip2_text_model", "k_proj v_proj q_proj out_proj fc1 fc2 head"},
    {"siglip2_vision_model", "patch_embedding k_proj v_proj q_proj out_proj fc1 fc2"},
    {"siglip_text_model", "k_proj v_proj q_proj out_proj fc1 fc2 head"},
    {"siglip_vision_model", "q_proj k_proj v_proj out_proj fc1 fc2"},
    {"slanet", "fc1 fc2"},
    {"slanext", "fc1 fc2"},
    {"speech-encoder-decoder", "projection"},
    {"speecht5", "projection"},
    {"swiftformer", "to_query to_key proj final head dist_head"},
    {"swin2sr", "query key value dense 0 2"},
    {"switch_transformers", "q k v o wi wi_0 wi_1 wo classifier"},
    {"t5", "q k v o wi wi_0 wi_1 wo qa_outputs dense out_proj classifier"},
    {"t5gemma", "out_proj"},
    {"t5gemma2", "out_proj"},
    {"timesformer", "qkv dense temporal_dense classifier"},
    {"tipsv2", "q_proj k_proj v_proj o_proj fc1 fc2"},
    {"tipsv2_dpt", "0 head"},
    {"tipsv2_vision_model", "q_proj k_proj v_proj o_proj fc1 fc2"},
    {"udop", "q k v o wi wi_0 wi_1 wo"},
    {"ultravbert", "lm_head modality_projection classifier"},
    {"umt5", "q k v o wi wi_0 wi_1 wo qa_outputs dense out_proj classifier"},
    {"unispeech", "projection weight_proj"},
    {"unispeech-sat", "projection weight_proj"},
    {"videomt", "k_proj v_proj q_proj out_proj fc1 fc2 fc3 class_predictor query_updater"},
    {"videoprism", "q_proj k_proj v_proj o_proj fc1 fc2"},
    {"videoprism_text_model", "q_proj k_proj v_proj o_proj fc1 fc2"},
    {"videoprism_vision_model", "q_proj k_proj v_proj o_proj fc1 fc2 classifier"},
    {"vitdet", "qkv proj fc1 fc2"},
    {"vitpose_backbone", "query key value dense fc1 fc2"},
    {"vjepa2",
     "query key value proj fc1 fc2 predictor_embeddings k_proj v_proj q_proj out_proj classifier"},
    {"wav2vec2", "projection project_hid project_q weight_proj"},
    {"wav2vec2-bert", "projection"},
    {"wav2vec2-conformer", "projection project_hid project_q weight_proj"},
    {"wavlm", "projection"},
    {"xclip", "text_projection visual_projection q_proj k_proj v_proj out_proj fc1 fc2"},
    {"xclip_text_model", "k_proj v_proj q_proj out_proj fc1 fc2"},
    {"xclip_vision_model", "k_proj v_proj q_proj out_proj fc1 fc2"},
    {"xcodec", "fc fc1 fc2"},
    {"xcodec2", "projection"},
    {"xlstm",
     "q k v ogate_preact igate_preact fgate_preact out_proj proj_up_gate proj_up proj_down "
     "lm_head"},
};

/// Stored matrices that transformers 5.23 splits by rows into several modules. Only one of the
/// modules gets the weight_global_scale. Source: conversion_mapping.py, Chunk.
inline constexpr LayersOfType kTakenApart[] = {
    {"gte", "qkv_proj up_gate_proj"},
    {"hrm_text", "gqkv_proj gate_up_proj"},
    {"jina_embeddings_v3", "Wqkv"},
    {"nomic_bert", "Wqkv"},
};

/// Stored matrices that transformers 5.23 splits with Split and Deinterleave. These cannot split a
/// scale of one element, so loading stops.
inline constexpr LayersOfType kSplitFails[] = {
    {"inkling_mm_model", "w13_dn"},
    {"molmo2", "att_proj ff_proj"},
    {"molmo2_text", "att_proj ff_proj"},
};

/// Types whose single experts are merged: WeightConverter of `experts.*.….weight` in
/// conversion_mapping.py. CompressedTensorsDequantize runs first and drops plain weights.
inline constexpr std::string_view kMergesExperts =
    "afmoe axk1 axk2 bailing_hybrid beam cohere2_moe deepseek_ocr2 deepseek_v2 deepseek_v3 "
    "deepseek_v32 deepseek_v4 dots1 dots3_note_text dots3_note_vision_encoder ernie4_5_moe "
    "ernie4_5_vl_moe exaone_moe flex_olmo flint glm4_moe glm4_moe_lite glm4v_moe glm5_next "
    "glm5_next_text glm_moe_dsa hunyuan_v1_moe hy_v3 jamba kimi_k25 kimi_linear kolibri1 laguna "
    "lfm2_moe longcat_flash mellum mimo_v2_flash minimax minimax_m2 minimax_m3_vl "
    "mistral_large4_text mixtral nemotron_h olmoe phimoe qwen2_moe qwen3_5_moe_text qwen3_moe "
    "qwen3_next qwen3_omni_moe qwen3_omni_moe_text qwen3_omni_moe_thinker qwen4_exp_text "
    "solar_open unlimited_ocr_text";

/// Plain weights that are merged into one plain weight, or cut.
inline constexpr LayersOfType kMergesKept[] = {
    {"bailing_hybrid", "q_conv1d k_conv1d v_conv1d"}, {"glm5_next", "q_conv1d k_conv1d v_conv1d"},
    {"glm5_next_text", "q_conv1d k_conv1d v_conv1d"}, {"inkling2_text", "unembed lm_head"},
    {"kimi_linear", "q_conv1d k_conv1d v_conv1d"},    {"olmo_hybrid", "q_conv1d k_conv1d v_conv1d"},
};

/// Weights that become several modules. No list of the configuration has the names of these
/// modules, so they are built quantized.
inline constexpr LayersOfType kSplitsKept[] = {
    {"gradium_phonon_tts", "in_proj"},
    {"hrm_text", "gqkv_proj gate_up_proj"},
    {"inkling_mm_model", "w13_dn"},
    {"molmo2", "att_proj ff_proj"},
    {"molmo2_text", "att_proj ff_proj"},
    {"nemo_speechlm", "w_qkv"},
    {"qianfan_ocr", "qkv"},
    {"tipsv2_vision_model", "qkv w12"},
    {"unlimited_ocr", "qkv_proj"},
};

}  // namespace nvfp4::checkpoint
