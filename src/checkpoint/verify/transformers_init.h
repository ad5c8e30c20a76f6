#pragma once

#include <string_view>

/// Found by loading: for each type that transformers 5.23 knows, which linear layers
/// `_init_weights` asks for their weight. compressed-tensors 0.20 takes it away before, so that
/// loading stops.
namespace nvfp4::checkpoint {

struct LayersOfType {
  std::string_view model_type;
  std::string_view layers;  ///< last components of their names
};

inline constexpr LayersOfType kInitReads[] = {
    {"afmoe", "gate"},
    {"align", "text_projection"},
    {"altclip", "text_projection visual_projection q_proj k_proj v_proj out_proj fc1 fc2"},
    {"blt", "q_proj k_proj v_proj o_proj gate_proj up_proj down_proj patch_embedding_projection"},
    {"bridgetower",
     "cross_modal_text_transform cross_modal_image_transform c_fc c_proj query key "
     "value dense out_proj"},
    {"chinese_clip", "text_projection visual_projection q_proj k_proj v_proj out_proj fc1 fc2"},
    {"chinese_clip_vision_model", "q_proj k_proj v_proj out_proj fc1 fc2"},
    {"clap", "query key value dense linear1 linear2 reduction"},
    {"clipseg", "text_projection visual_projection q_proj k_proj v_proj out_proj fc1 fc2"},
    {"clvp", "k_proj v_proj q_proj out_proj proj fc2 projection"},
    {"cvt", "projection_query projection_key projection_value dense"},
    {"d_fine", "enc_score_head sampling_offsets attention_weights gate"},
    {"data2vec-audio", "projection"},
    {"deimv2",
     "enc_score_head sampling_offsets attention_weights gate_proj up_proj down_proj "
     "gate"},
    {"deformable_detr",
     "sampling_offsets attention_weights value_proj output_proj reference_points"},
    {"depth_pro", "q_proj k_proj v_proj o_proj fc1 fc2"},
    {"dinov2", "q_proj k_proj v_proj o_proj fc1 fc2"},
    {"dinov2_with_registers", "q_proj k_proj v_proj o_proj fc1 fc2"},
    {"dinov3_vit", "k_proj v_proj q_proj o_proj up_proj down_proj"},
    {"falcon", "query_key_value dense dense_h_to_4h dense_4h_to_h"},
    {"falcon_mamba", "dt_proj out_proj"},
    {"fastspeech2_conformer", "linear_q linear_k linear_v linear_out linear_pos linear feat_out"},
    {"gpt_bigcode", "c_proj"},
    {"grounding-dino",
     "vision_proj text_proj values_vision_proj values_text_proj out_vision_proj "
     "out_text_proj sampling_offsets attention_weights value_proj output_proj"},
    {"groupvit", "q_proj k_proj v_proj out_proj fc1 fc2"},
    {"hiera", "qkv proj fc1 fc2"},
    {"ijepa", "q_proj k_proj v_proj o_proj fc1 fc2"},
    {"kosmos-2", "q_proj k_proj v_proj out_proj fc1 fc2 dense"},
    {"longcat_flash", "classifier"},
    {"longt5", "q k v o wi wi_0 wi_1 wo"},
    {"lw_detr",
     "q_proj k_proj v_proj o_proj fc1 fc2 sampling_offsets attention_weights "
     "value_proj output_proj"},
    {"mamba", "dt_proj out_proj"},
    {"mamba2", "out_proj"},
    {"mask2former", "sampling_offsets attention_weights value_proj output_proj"},
    {"mgp-str", "qkv proj fc1 fc2 char_head bpe_head wp_head"},
    {"mlcd", "q_proj k_proj v_proj out_proj fc1 fc2"},
    {"mlcd_vision_model", "q_proj k_proj v_proj out_proj fc1 fc2"},
    {"mm-grounding-dino",
     "vision_proj text_proj values_vision_proj values_text_proj out_vision_proj "
     "out_text_proj sampling_offsets attention_weights value_proj output_proj"},
    {"modernbert", "decoder Wqkv Wo Wi dense"},
    {"modernbert-decoder", "decoder q_proj k_proj v_proj Wo Wi dense"},
    {"modernvbert", "modality_projection"},
    {"mt5", "q k v o wi wi_0 wi_1 wo"},
    {"nanochat", "o_proj"},
    {"neomme", "o_proj down_proj"},
    {"neucodec", "projection"},
    {"oneformer", "sampling_offsets attention_weights value_proj output_proj"},
    {"owlv2", "text_projection visual_projection q_proj k_proj v_proj out_proj fc1 fc2"},
    {"owlvit", "text_projection visual_projection q_proj k_proj v_proj out_proj fc1 fc2"},
    {"pe_audio", "Wqkv Wo Wi"},
    {"phimoe", "router"},
    {"pix2struct", "patch_projection query key value output wi_0 wi_1 wo"},
    {"pop2piano", "q k v o wi wi_0 wi_1 wo"},
    {"pp_doclayout_v3",
     "enc_score_head class_embed sampling_offsets attention_weights value_proj "
     "output_proj"},
    {"pp_doclayout_v4", "enc_score_head sampling_offsets attention_weights value_proj output_proj"},
    {"pvt", "query key value dense dense1 dense2"},
    {"pvt_v2", "query key value proj dense1 dense2"},
    {"radio", "patch_projection q_proj k_proj v_proj o_proj fc1 fc2"},
    {"recurrent_gemma",
     "linear_x linear_y linear_out gate_proj up_proj down_proj q_proj k_proj v_proj "
     "o_proj"},
    {"rf_detr",
     "q_proj k_proj v_proj o_proj fc1 fc2 sampling_offsets attention_weights "
     "value_proj output_proj"},
    {"rt_detr", "enc_score_head sampling_offsets attention_weights value_proj output_proj"},
    {"rt_detr_v2", "enc_score_head sampling_offsets attention_weights value_proj output_proj"},
    {"rwkv", "key value receptance output head"},
    {"sam3_lite_text", "projection"},
    {"sam3_lite_text_text_model", "projection"},
    {"sapiens2", "q_proj o_proj k_proj v_proj gate_proj up_proj down_proj"},
    {"seggpt", "qkv proj lin1 lin2"},
    {"siglip", "q_proj k_proj v_proj out_proj fc1 fc2 head"},
    {"siglip2", "q_proj k_proj v_proj out_proj fc1 fc2 head patch_embedding"},
    {"siglip2_vision_model", "patch_embedding k_proj v_proj q_proj out_proj fc1 fc2"},
    {"siglip_vision_model", "q_proj k_proj v_proj out_proj fc1 fc2"},
    {"speech-encoder-decoder", "projection"},
    {"speecht5", "projection"},
    {"swiftformer", "to_query to_key proj final"},
    {"swin2sr", "query key value dense"},
    {"switch_transformers", "q k v o wi wi_0 wi_1 wo classifier"},
    {"t5", "q k v o wi wi_0 wi_1 wo"},
    {"timesformer", "qkv dense temporal_dense"},
    {"tipsv2", "q_proj k_proj v_proj o_proj fc1 fc2"},
    {"tipsv2_vision_model", "q_proj k_proj v_proj o_proj fc1 fc2"},
    {"udop", "q k v o wi wi_0 wi_1 wo"},
    {"umt5", "q k v o wi wi_0 wi_1 wo"},
    {"unispeech", "projection"},
    {"unispeech-sat", "projection"},
    {"videoprism", "q_proj k_proj v_proj o_proj fc1 fc2"},
    {"videoprism_vision_model", "q_proj k_proj v_proj o_proj fc1 fc2"},
    {"vitdet", "qkv proj fc1 fc2"},
    {"vjepa2", "query key value proj fc1 fc2 predictor_embeddings"},
    {"wav2vec2", "projection"},
    {"wav2vec2-bert", "projection"},
    {"wav2vec2-conformer", "projection"},
    {"wavlm", "projection"},
    {"xclip", "text_projection visual_projection q_proj k_proj v_proj out_proj fc1 fc2"},
    {"xcodec", "fc fc1 fc2"},
    {"xcodec2", "projection"},
    {"xlstm",
     "q k v ogate_preact igate_preact fgate_preact out_proj proj_up_gate proj_up "
     "proj_down"},
};

/// Which stored matrices transformers 5.23 takes apart, rows from rows, one module each: its
/// conversion_mapping.py, Chunk. Their one weight_global_scale goes to one of the modules.
inline constexpr LayersOfType kTakenApart[] = {
    {"gte", "qkv_proj up_gate_proj"},
    {"hrm_text", "gqkv_proj gate_up_proj"},
    {"jina_embeddings_v3", "Wqkv"},
    {"nomic_bert", "Wqkv"},
};

}  // namespace nvfp4::checkpoint
