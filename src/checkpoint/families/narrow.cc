#include "checkpoint/families/narrow.h"

#include <algorithm>

#include "checkpoint/match/pattern.h"
#include "core/require.h"

namespace nvfp4::checkpoint {
namespace {

/// Of any model: they decide by small differences, or are exponents.
constexpr std::string_view kAlways[] = {
    "A_log",       "A",           "D",           "dt_bias",
    "time_decay",  "time_first",  "sinks",       "e_score_correction_bias",
    "expert_bias", "moe_statics", "latent_mean", "latent_std",
};

struct Family {
  std::string_view model_types, names;
};
/// Source: transformers 5.23, `_keep_in_fp32_modules` and `_keep_in_fp32_modules_strict`.
constexpr Family kFamilies[] = {
    {" afmoe ",
     " input_layernorm k_norm norm post_attention_layernorm post_mlp_layernorm pre_mlp_layernorm "
     "q_norm "},
    {" axk2 deepseek_v32 glm_moe_dsa ", " indexer.weights_proj "},
    {" bailing_hybrid ", " conv1d "},
    {" beam muse_spark muse_spark_text ", " mlp.gate.weight "},
    {" blip-2 ", " qformer query_tokens "},
    {" deepseek_v4 ",
     " attn_hc ffn_hc hc_head input_layernorm kv_norm norm position_bias post_attention_layernorm "
     "q_a_norm self_attn.compressor.gate_proj self_attn.compressor.indexer.gate_proj "
     "self_attn.compressor.indexer.kv_proj self_attn.compressor.indexer.scorer.weights_proj "
     "self_attn.compressor.kv_proj "},
    {" ernie4_5_moe ernie4_5_vl_moe ernie4_5_vl_moe_text flint ", " gate.weight "},
    {" esmfold2 ",
     " boundaries distogram_head fourier norm.bias norm.weight norm_mix norm_single norm_start "},
    {" glm5_next glm5_next_text ", " attn_hc.base attn_hc.scale conv1d ffn_hc.base ffn_hc.scale "},
    {" gpt_oss ", " input_layernorm norm post_attention_layernorm "},
    {" gradium_phonon_tts pocket_tts ", " freqs "},
    {" granite_speech5_ctc ", " conv.norm "},
    {" hy_v4 ", " base fn hc_base hc_fn hc_scale k_norm lm_head scale weights_proj "},
    {" inkling_mm_model inkling_text ", " attn_sconv gate.global_scale k_sconv mlp_sconv v_sconv "},
    {" inkling2 inkling2_text ",
     " attention_input final_input k_sconv.conv1d mlp.gate.weight mlp_input "
     "post_attention_convolution post_mlp_convolution v_sconv.conv1d "},
    {" instructblip instructblipvideo ", " query_tokens "},
    {" kyutai_speech_to_text ", " codec_model "},
    {" longcat_flash ", " classifier.weight "},
    {" mistral_large4 mistral_large4_text ", " indexer.weights_proj mlp.gate.weight rotary_emb "},
    {" mt5 pop2piano t5 udop umt5 ", " wo "},
    {" nemotron3_5_transcribe_asr_audio ", " audio_tower multi_modal_projector "},
    {" slanext ", " structure_attention_cell structure_generator "},
    {" voxtral voxtral_encoder ", " embed_positions "},
};

bool has_word(std::string_view list, std::string_view word) {
  return list.find(fmt::format(" {} ", word)) != list.npos;
}

/// Whole parts of the name in a row.
bool has_parts(std::string_view name, std::string_view parts) {
  return fmt::format(".{}.", name).find(fmt::format(".{}.", parts)) != std::string::npos;
}

bool is_router_bias(std::string_view tensor) {
  const auto parts = split_name(tensor);
  return parts.size() >= 2 && parts.back() == "bias" &&
         (parts[parts.size() - 2] == "gate" ||
          parts[parts.size() - 2].find("router") != std::string_view::npos);
}

}  // namespace

bool stays_f32(std::string_view tensor, std::span<const std::string> model_types) {
  const auto named = [&](std::string_view name) { return has_parts(tensor, name); };
  if (is_router_bias(tensor) || std::ranges::any_of(kAlways, named)) return true;
  for (const Family& family : kFamilies) {
    const auto is_family = [&](const std::string& t) { return has_word(family.model_types, t); };
    if (std::ranges::none_of(model_types, is_family)) continue;
    const auto words = split_name(family.names, ' ');
    if (std::ranges::any_of(words, [&](std::string_view w) { return !w.empty() && named(w); }))
      return true;
  }
  return false;
}

}  // namespace nvfp4::checkpoint
