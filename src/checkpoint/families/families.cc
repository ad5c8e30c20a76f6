#include <algorithm>

#include "checkpoint/families/family.h"
#include "checkpoint/families/kept_names.h"

namespace nvfp4::checkpoint {
namespace {

constexpr NameRule kNoVit[] = {{"", "", Where::first, "vit"}};
constexpr NameRule kNoVisualBert[] = {{"", "", Where::first, "visual_bert"}};
constexpr NameRule kNoSpeechT5[] = {{"", "", Where::first, "speecht5"}};
constexpr NameRule kNoSpectrogram[] = {{"", "", Where::first, "audio_spectrogram_transformer"}};
constexpr NameRule kGraniteSpeech[] = {{"audio", kAudioReason, Where::first, "encoder"}};
constexpr NameRule kIBert[] = {
    {"linear", "loaders do not replace the classes of this model", Where::any, "*"}};
constexpr NameRule kDbrx[] = {{"experts", "experts in one matrix, which no loader reads in 4 bits",
                               Where::last, "experts.mlp.v1 experts.mlp.w1 experts.mlp.w2"}};
// vLLM 0.32 builds these layers without a quantization.
constexpr NameRule kCompressor[] = {{"indexer", kPlainReason, Where::any, "compressor"}};
constexpr NameRule kPlainAttention[] = {
    {"indexer", kPlainReason, Where::any, "indexer"},
    {"latent attention", kPlainReason, Where::any, "self_attn"}};
// The vision tower has no name of its own in checkpoints.
constexpr NameRule kCosmos[] = {
    {"vision", kVisionReason, Where::first, "blocks merger deepstack_merger_list"}};
constexpr NameRule kMamba[] = {{"mamba", kPlainReason, Where::last,
                                "mixer.in_proj mixer.out_proj mamba.in_proj mamba.out_proj"}};

constexpr std::string_view kQkvb[] = {"q_proj,k_proj,v_proj,b_proj"};
constexpr std::string_view kQkvg[] = {"q_proj,k_proj,v_proj,g_proj"};
constexpr std::string_view kQkvgfab[] = {"q_proj,k_proj,v_proj,g_proj,f_a_proj,b_proj"};
constexpr std::string_view kQkvAG[] = {"q_a_proj,kv_a_proj_with_mqa,g_proj"};

// Sources: `f32` has `_keep_in_fp32_modules` and `_keep_in_fp32_modules_strict` of transformers
// 5.24, and the corresponding names in checkpoints. Heads among `second_names` are
// `_tied_weights_keys`.
constexpr Family kFamilies[] = {
    // Stacks of experts.
    {.model_types = "deepseek_v3 glm4_moe mixtral qwen2_moe qwen3_5_moe qwen3_5_moe_text qwen3_moe "
                    "qwen3_next step3p5",
     .stacks = Stacks::rows},
    // These rows precede their language models, which alone read stacks of rows and no single
    // experts.
    {.model_types = "glm4v_moe minimax_m3_vl inkling_mm_model", .stacks = Stacks::rows},
    {.model_types = "openai_privacy_filter qwen3_vl_moe", .stacks = Stacks::columns},
    {.model_types = "diffusion_gemma diffusion_gemma_text gemma4 gemma4_text glm4v_moe_text "
                    "granitemoe_swa hy_v4 hy_v4_vl hy_v4_vl_text inkling_text lara_mini "
                    "minimax_m3_vl_text mistral4 muse_spark muse_spark_text qwen3_vl_moe_text zaya",
     .stacks = Stacks::rows_only},
    {.model_types = "llama4 llama4_text", .stacks = Stacks::columns, .exported_as_stacks = true},
    {.model_types = "gpt_oss",
     .stacks = Stacks::interleaved,
     .only_stacks = true,
     .exported_as_stacks = true,
     .f32 = "input_layernorm norm post_attention_layernorm"},

    // Models whose whole name is the name of a tower in other models.
    {.model_types = "vit vit_*", .towers = kNoVit},
    {.model_types = "visual_bert",
     .towers = kNoVisualBert,
     .second_names = "cls.predictions.decoder"},
    {.model_types = "speecht5", .towers = kNoSpeechT5},
    {.model_types = "audio-spectrogram-transformer", .towers = kNoSpectrogram},
    {.model_types = "granite_speech*", .towers = kGraniteSpeech},
    {.model_types = "cosmos3_omni", .towers = kCosmos},

    // Models with special kinds of layers.
    {.model_types = "ibert", .modules = kIBert, .second_names = "lm_head.decoder"},
    {.model_types = "mamba falcon_mamba jamba", .modules = kMamba},
    {.model_types = "dbrx", .modules = kDbrx},
    {.model_types = "deepseek_v4", .modules = kCompressor},
    {.model_types = "glm5_next glm5_next_text", .modules = kPlainAttention},
    {.model_types = "gpt2 gpt-sw3 openai-gpt imagegpt decision_transformer clvp* *encoder-decoder",
     .conv1d = true},

    // Models whose head shares the embedding.
    {.model_types =
         "bert big_bird blip deberta deberta-v2 ernie fnet layoutlm lxmert megatron-bert "
         "mobilebert mra nomic_bert nystromformer roc_bert roformer squeezebert tapas yoso",
     .second_names = "cls.predictions.decoder"},
    {.model_types = "albert", .second_names = "predictions.decoder"},
    {.model_types = "bert-generation camembert data2vec-text esm gte jina_embeddings_v3 longformer "
                    "mpnet roberta roberta-prelayernorm xlm-roberta xlm-roberta-xl xmod",
     .second_names = "lm_head.decoder"},
    {.model_types = "modernbert modernbert-decoder", .second_names = "decoder"},
    {.model_types = "canary cohere_asr moonshine moonshine_streaming whisper",
     .second_names = "proj_out"},
    {.model_types = "biogpt fsmt trocr", .second_names = "output_projection"},
    {.model_types = "convbert electra", .second_names = "generator_lm_head"},
    {.model_types = "distilbert", .second_names = "vocab_projector"},
    {.model_types = "gpt_neox_japanese", .second_names = "embed_out"},
    {.model_types = "t5gemma t5gemma2", .second_names = "lm_head.out_proj"},
    {.model_types = "xlnet", .second_names = "lm_loss"},
    {.model_types = "bridgetower vilt", .second_names = "mlm_score.decoder"},
    {.model_types = "flaubert xlm", .second_names = "pred_layer.proj"},
    {.model_types = "blip-2 instructblip instructblipvideo",
     .second_names = "language_model.lm_head"},
    {.model_types = "kosmos-2*", .second_names = "text_model.lm_head"},
    {.model_types = "bark", .second_names = "lm_heads.*"},
    // Towers in vLLM and SGLang.
    {.model_types = "dots3_note", .second_names = "visual.* audio_tower.*"},
    {.model_types = "minicpmv4_6 minicpmv4_7", .second_names = "vpm.* vit_merger.*"},

    // Layers that vLLM 0.32 or SGLang 0.5.23 fuse.
    {.model_types = "bailing_hybrid bailing_moe_v3_vl", .fused = kQkvb},
    {.model_types = "olmo_hybrid", .fused = kQkvg},
    {.model_types = "kimi_k3 kimi_linear", .fused = kQkvgfab},
    {.model_types = "dots3_note dots3_note_text kimi_k3 kimi_linear", .fused = kQkvAG},

    // Tensors that stay FP32.
    {.model_types = "afmoe",
     .f32 = "input_layernorm k_norm norm post_attention_layernorm post_mlp_layernorm "
            "pre_mlp_layernorm q_norm"},
    {.model_types = "apertus1p5", .f32 = "audio_tokenizer vision_tokenizer"},
    {.model_types = "axk2 deepseek_v32 glm_moe_dsa", .f32 = "indexer.weights_proj"},
    // The weights of routers.
    {.model_types =
         "axk1 axk2 bailing_hybrid beam deepseek_ocr2 deepseek_ocr2_text deepseek_v2 deepseek_v3 "
         "deepseek_v32 dots1 dots3_note dots3_note_text ernie4_5_moe ernie4_5_vl_moe "
         "ernie4_5_vl_moe_text exaone_moe flint glm4_moe glm4_moe_lite glm4v_moe glm4v_moe_text "
         "glm5_next glm5_next_text glm_moe_dsa hy_v3 hy_v4 hy_v4_vl hy_v4_vl_text inkling2 "
         "inkling2_loop inkling2_loop_text inkling2_text kimi_linear mimo_v2_flash mistral_large4 "
         "mistral_large4_text muse_spark muse_spark_text nemotron_h sarvam_mla sarvam_moe "
         "solar_open unlimited_ocr unlimited_ocr_text",
     .f32 = "gate.weight"},
    {.model_types = "bailing_hybrid", .f32 = "conv1d k_conv1d q_conv1d v_conv1d"},
    {.model_types = "blip-2", .f32 = "qformer query_tokens"},
    {.model_types = "deepseek_v4",
     .f32 = "attn_hc ffn_hc hc_head input_layernorm kv_norm norm position_bias "
            "post_attention_layernorm q_a_norm self_attn.compressor.gate_proj "
            "self_attn.compressor.indexer.gate_proj self_attn.compressor.indexer.kv_proj "
            "self_attn.compressor.indexer.scorer.weights_proj self_attn.compressor.kv_proj "
            // The same in DeepSeek's own names.
            "hc_attn_base hc_attn_fn hc_attn_scale hc_ffn_base hc_ffn_fn hc_ffn_scale "
            "hc_head_base hc_head_fn hc_head_scale attn_norm ffn_norm q_norm attn_sink ape "
            "compressor.wgate compressor.wkv indexer.weights_proj"},
    {.model_types = "esmfold2",
     .f32 = "boundaries distogram_head fourier norm.bias norm.weight norm_mix norm_single "
            "norm_start"},
    {.model_types = "glm5_next glm5_next_text",
     .f32 = "attn_hc.base attn_hc.scale conv1d ffn_hc.base ffn_hc.scale hc_attn_base "
            "hc_attn_scale hc_ffn_base hc_ffn_scale k_conv1d q_conv1d v_conv1d"},
    {.model_types = "hunyuan_v1_moe", .f32 = "gate.wg"},
    {.model_types = "d_fine deimv2 rt_detr_v2", .f32 = "n_points_scale num_points_scale"},
    {.model_types = "flint", .f32 = "softmax_offset"},
    {.model_types = "gradium_phonon_tts pocket_tts", .f32 = "emb_mean emb_std freqs"},
    {.model_types = "granite_speech5_ctc granite_speech5_encoder", .f32 = "conv.norm"},
    {.model_types = "hy_v4 hy_v4_vl hy_v4_vl_text",
     .f32 = "base fn hc_base hc_fn hc_head_base hc_head_fn hc_head_scale hc_scale k_norm "
            "learnable_sink_param lm_head scale weights_proj"},
    {.model_types = "inkling_mm_model inkling_text",
     .f32 = "attn_sconv gate.global_scale k_sconv mlp_sconv v_sconv"},
    {.model_types = "inkling2 inkling2_loop inkling2_loop_text inkling2_text",
     .f32 = "attention_input final_input k_sconv.conv1d mlp_input post_attention_convolution "
            "post_mlp_convolution sconv.conv1d v_sconv.conv1d "
            // The same in the names of checkpoints.
            "attn_res attn_sconv k_sconv.weight mlp_sconv v_sconv.weight "
            // The passes of inkling2_loop.
            "forget_gate_proj forget_weight gain_weight message_gate_proj message_input "
            "middle_cycle_cross_pass_kv_queries "
            "middle_cycle_cross_pass_queries"},
    {.model_types = "instructblip instructblipvideo", .f32 = "query_tokens"},
    {.model_types = "kyutai_speech_to_text", .f32 = "codec_model"},
    {.model_types = "longcat_flash", .f32 = "classifier.weight"},
    {.model_types = "mistral_large4 mistral_large4_text",
     .f32 = "indexer.weights_proj lerope rotary_emb"},
    {.model_types = "muse_spark muse_spark_text",
     .f32 = "post_attention_residual_gate post_feedforward_residual_gate"},
    {.model_types = "mt5 pop2piano t5 udop umt5", .f32 = "wo"},
    {.model_types = "nemo_speechlm nemotron3_5_transcribe_asr_audio nemotron3_5_transcribe_audio "
                    "nemotron3_5_transcribe_word_timestamp",
     .f32 = "audio_tower multi_modal_projector perception"},
    {.model_types = "slanext", .f32 = "structure_attention_cell structure_generator"},
    {.model_types = "voxtral voxtral_encoder", .f32 = "embed_positions"},
};

std::vector<const Family*>& all() {
  static std::vector<const Family*> families = [] {
    std::vector<const Family*> rows;
    for (const Family& family : kFamilies) rows.push_back(&family);
    return rows;
  }();
  return families;
}

}  // namespace

const std::vector<const Family*>& families() { return all(); }

std::vector<const Family*> families_of(std::span<const std::string> model_types) {
  std::vector<const Family*> found;
  for (const Family* family : all())
    if (std::ranges::any_of(model_types, [&](const std::string& type) {
          return is_model_type(family->model_types, type);
        }))
      found.push_back(family);
  return found;
}

std::vector<const Family*> families_of(std::string_view model_type) {
  const std::string type(model_type);
  return families_of(std::span(&type, 1));
}

AddedFamily::AddedFamily(const Family& family) { all().insert(all().begin(), &family); }
AddedFamily::~AddedFamily() { all().erase(all().begin()); }

}  // namespace nvfp4::checkpoint
