#include "checkpoint/families/select.h"

#include "checkpoint/families/model_config.h"
#include "testing.h"

namespace nvfp4::checkpoint::select_test {

using safetensors::TensorInfo;
using Shape = std::vector<std::int64_t>;
constexpr auto kBf16 = safetensors::DType::bf16;

TensorInfo tensor(std::string name, Shape shape, safetensors::DType dtype = kBf16) {
  TensorInfo t;
  t.name = std::move(name);
  t.dtype = dtype;
  t.shape = std::move(shape);
  return t;
}

struct Case {
  const char* name;
  Shape shape;
  bool quantize;
  const char* kind;
};

void check(const std::vector<Case>& cases, std::string_view model_type = {}) {
  for (const Case& c : cases) {
    const Selection s = classify(tensor(c.name, c.shape), model_type);
    EXPECT_EQ(s.quantize, c.quantize) << c.name << ": " << s.reason;
    EXPECT_EQ(s.kind, c.kind) << c.name;
    EXPECT_EQ(s.reason.empty(), c.quantize) << c.name << ": " << s.reason;
  }
}

TEST(Select, Llama) {
  check({{"model.embed_tokens.weight", {32000, 4096}, false, "embedding"},
         {"model.layers.0.self_attn.q_proj.weight", {4096, 4096}, true, "linear"},
         {"model.layers.0.self_attn.q_proj.bias", {4096}, false, "bias"},
         {"model.layers.0.self_attn.rotary_emb.inv_freq", {64}, false, "vector"},
         {"model.layers.0.mlp.gate_proj.weight", {14336, 4096}, true, "linear"},
         {"model.layers.0.mlp.gate_up_proj.weight", {28672, 4096}, true, "linear"},
         {"model.layers.0.mlp.down_proj.weight", {4096, 14336}, true, "linear"},
         {"model.layers.0.input_layernorm.weight", {4096}, false, "norm"},
         {"model.norm.weight", {4096}, false, "norm"},
         {"lm_head.weight", {32000, 4096}, false, "lm_head"},
         {"tok_embeddings.weight", {32000, 4096}, false, "embedding"},
         {"layers.0.attention.wq.weight", {4096, 4096}, true, "linear"},
         {"transformer.output_layer.weight", {65024, 4096}, false, "lm_head"},
         {"output.weight", {32000, 4096}, false, "lm_head"}});
}

TEST(Select, MixtureOfExperts) {
  check({{"model.layers.3.mlp.gate.weight", {128, 2048}, false, "router"},
         {"model.layers.3.mlp.experts.17.gate_proj.weight", {768, 2048}, true, "expert"},
         {"model.layers.3.self_attn.q_norm.weight", {128}, false, "norm"},
         {"model.layers.3.mlp.shared_expert_gate.weight", {1, 2048}, false, "router"},
         {"model.layers.3.mlp.shared_expert.up_proj.weight", {512, 2048}, true, "linear"},
         {"model.layers.3.block_sparse_moe.gate.weight", {8, 4096}, false, "router"},
         {"model.layers.3.block_sparse_moe.experts.0.w2.weight", {4096, 14336}, true, "expert"},
         {"layers.3.ffn.gate.weight", {256, 7168}, false, "router"},
         {"layers.3.ffn.experts.5.w1.weight", {2048, 7168}, true, "expert"}});
}

TEST(Select, DeepSeekV3) {
  check({{"model.layers.5.self_attn.q_a_proj.weight", {1536, 7168}, true, "linear"},
         {"model.layers.5.self_attn.kv_a_proj_with_mqa.weight", {576, 7168}, true, "linear"},
         {"model.layers.5.self_attn.kv_a_layernorm.weight", {512}, false, "norm"},
         {"model.layers.5.self_attn.kv_b_proj.weight", {32768, 512}, false, "latent attention"},
         {"layers.5.attention.wkv_b.weight", {32768, 512}, false, "latent attention"},
         {"model.layers.5.self_attn.indexer.weights_proj.weight", {64, 7168}, false, "indexer"},
         {"model.layers.5.mlp.gate.e_score_correction_bias", {256}, false, "bias"},
         {"model.layers.5.mlp.shared_experts.down_proj.weight", {7168, 2048}, true, "linear"},
         {"model.layers.61.eh_proj.weight", {7168, 14336}, false, "mtp"},
         {"model.layers.61.enorm.weight", {7168}, false, "norm"},
         {"model.layers.61.embed_tokens.weight", {129280, 7168}, false, "embedding"},
         {"model.layers.61.shared_head.head.weight", {129280, 7168}, false, "lm_head"},
         {"model.layers.61.shared_head.norm.weight", {7168}, false, "norm"},
         {"model.layers.61.mlp.experts.0.up_proj.weight", {2048, 7168}, true, "expert"},
         {"mtp.fc.weight", {2048, 4096}, false, "mtp"},
         {"model.mtp_linear_proj.0.weight", {2560, 5120}, false, "mtp"}});
}

TEST(Select, StackedExperts) {
  check(
      {{"language_model.model.layers.1.feed_forward.experts.gate_up_proj",
        {16, 5120, 16384},
        true,
        "stacked experts"},
       {"language_model.model.layers.1.feed_forward.router.weight", {16, 5120}, false, "router"},
       {"language_model.model.layers.1.feed_forward.shared_expert.up_proj.weight",
        {8192, 5120},
        true,
        "linear"},
       {"model.layers.1.mlp.experts.down_proj", {32, 2880, 2880}, true, "stacked experts"},
       {"model.layers.1.mlp.experts.down_proj_bias", {32, 2880}, false, "bias"},
       {"model.layers.1.mlp.router.weight", {32, 2880}, false, "router"},
       {"model.layers.1.self_attn.sinks", {64}, false, "vector"},
       {"model.layers.1.block_sparse_moe.input_linear.weight", {32, 1024, 1536}, false, "experts"},
       {"model.layers.0.self_attention.experts.output_linear.weight",
        {8, 2048, 2048},
        false,
        "experts"},
       {"model.layers.0.conv.conv.weight", {2048, 1, 3}, false, "convolution"}});
}

TEST(Select, TablesUnderOtherNames) {
  check({{"model.shared.weight", {50265, 1024}, false, "embedding"},
         {"transformer.w.weight", {246534, 1280}, false, "embedding"},
         {"layers.0.self_attn.rel_pos_emb.weight", {1025, 128}, false, "embedding"},
         {"encoder.pos_emb.weight", {512, 1024}, false, "embedding"},
         {"text_model.model.segment_emb.weight", {2, 1536}, false, "embedding"},
         {"decoder.freq_emb.weight", {3, 1280}, false, "embedding"},
         {"mask_decoder.mask_tokens.weight", {4, 256}, false, "embedding"},
         {"model.query_feat.weight", {3900, 256}, false, "embedding"},
         {"query.weight", {200, 1024}, false, "embedding"},
         {"encoder.layer.0.attention.self.query.weight", {768, 768}, true, "linear"}});
}

TEST(Select, Heads) {
  check({{"lm_head.decoder.weight", {50265, 1024}, false, "lm_head"},
         {"cls.predictions.decoder.weight", {30522, 768}, false, "lm_head"},
         {"model.decoder.output_projection.weight", {42024, 1024}, false, "lm_head"},
         {"decoder.weight", {50368, 768}, false, "lm_head"},
         {"cls.predictions.transform.dense.weight", {768, 768}, false, "head"},
         {"classification_head.out_proj.weight", {3, 1024}, false, "head"},
         {"bert.pooler.dense.weight", {768, 768}, false, "head"},
         {"vocoder.dur_predictor.proj.weight", {1, 1280}, false, "head"},
         {"model.layers.0.self_attn.k_proj.weight", {8, 64}, true, "linear"},
         {"encoder.blocks.0.attention.q_head.weight", {768, 768}, true, "linear"}});
}

/// By name, and DeepSeek's by the number of its layer.
TEST(Select, LayersForMultiTokenPredictionAreKept) {
  check({{"mtp.layers.0.mlp.up_proj.weight", {64, 64}, false, "mtp"},
         {"model.mtp_layers.0.self_attn.q_proj.weight", {64, 64}, false, "mtp"},
         {"model.nextn_layer.mlp.experts.7.w1.weight", {64, 64}, false, "mtp"},
         {"mtp.layers.0.input_layernorm.weight", {64}, false, "norm"}});
  const auto of_layer = [](int layer) {
    return tensor(fmt::format("model.layers.{}.mlp.up_proj.weight", layer).c_str(), {64, 64});
  };
  Selector selector({}, {}, "deepseek_v3", 61);
  EXPECT_TRUE(selector.select(of_layer(60)).quantize);
  EXPECT_EQ(selector.select(of_layer(61)).kind, "mtp");
  EXPECT_FALSE(selector.select(of_layer(62)).quantize);
  Selector including({}, {"model.layers.61.*"}, "deepseek_v3", 61);
  EXPECT_TRUE(including.select(of_layer(61)).quantize);
  EXPECT_TRUE(Selector({}, {}, "deepseek_v3").select(of_layer(61)).quantize);
}

TEST(ModelConfig, SaysWhereLayersForMultiTokenPredictionBegin) {
  const auto first = [](const char* text) {
    return parse_model_config(text, "config.json").first_mtp_layer;
  };
  EXPECT_EQ(first(R"({"num_hidden_layers": 61, "num_nextn_predict_layers": 1})"), 61);
  EXPECT_EQ(first(R"({"num_hidden_layers": 61, "num_nextn_predict_layers": 0})"), std::nullopt);
  EXPECT_EQ(first(R"({"num_hidden_layers": 61})"), std::nullopt);
  EXPECT_EQ(first(R"({"num_nextn_predict_layers": 1})"), std::nullopt);
  EXPECT_EQ(first(R"({"text_config": {"num_hidden_layers": 48, "mtp_num_hidden_layers": 1}})"), 48);
}

TEST(Select, AModelThatBearsATowersName) {
  const Case query = {"vit.encoder.layer.0.attention.query.weight", {768, 768}, true, "linear"};
  check({query}, "vit");
  check({{query.name, query.shape, false, "vision"}}, "llava");
}

TEST(Select, Conv1dIsExcludedInEveryModel) {
  for (const char* type :
       {"gpt2", "decision_transformer", "imagegpt", "clvp", "vision-encoder-decoder"})
    check({{"h.0.attn.c_proj.weight", {768, 768}, false, "convolution"}}, type);
  check({{"decoder.transformer.h.0.attn.c_attn.weight", {768, 2304}, false, "convolution"},
         {"decoder.transformer.h.0.mlp.c_fc.weight", {768, 3072}, false, "convolution"}},
        "some_captioner");
  check({{"transformer.h.0.attn.c_attn.weight", {2304, 2048}, true, "linear"},
         {"transformer.h.0.mlp.c_fc.weight", {8192, 2048}, true, "linear"}},
        "gpt_bigcode");
}

TEST(Select, Multimodal) {
  check({{"model.visual.blocks.0.attn.qkv.weight", {3456, 1152}, false, "vision"},
         {"model.visual.patch_embed.proj.weight", {1152, 3, 2, 16, 16}, false, "vision"},
         {"vision_tower.encoder.layers.0.mlp.fc1.weight", {4304, 1152}, false, "vision"},
         {"multi_modal_projector.linear_1.weight", {5120, 1152}, false, "vision"},
         {"model.sam_model.blocks.0.attn.qkv.weight", {2304, 768}, false, "vision"},
         {"model.projector.layers.weight", {1280, 2048}, false, "vision"},
         {"mlp_AR.linear_1.weight", {4608, 4608}, false, "vision"},
         {"model.resampler_model.spatial_linear.0.weight", {5120, 5120}, false, "vision"},
         {"vte.weight", {65536, 1536}, false, "vision"},
         {"audio_tower.layers.0.fc1.weight", {1280, 1280}, false, "audio"},
         {"mm_whisper_embeddings.whisper_encoder.transformer.layers.0.attention.wq.weight",
          {1280, 1280},
          false,
          "audio"},
         {"model.layers.0.self_attn.q_proj.lora_A.default.weight", {16, 4096}, false, "adapter"},
         {"model.transformer.ff_out.weight", {152064, 3584}, false, "lm_head"},
         {"model.transformer.blocks.0.ff_out.weight", {3584, 18944}, true, "linear"},
         {"model.language_model.layers.0.mlp.experts.gate_up_proj",
          {128, 2048, 1536},
          true,
          "stacked experts"}});
}

TEST(Select, WhatSomeModelsNameAsOthersDo) {
  const Case encoder = {"encoder.layers.0.attn.to_q.weight", {1024, 1024}, false, "audio"};
  check({encoder}, "granite_speech");
  check({{encoder.name, encoder.shape, true, "linear"}});
  const Case mixer = {"model.layers.0.mamba.in_proj.weight", {8192, 4096}, false, "mamba"};
  check({mixer, {"model.layers.0.mamba.out_proj.weight", {4096, 8192}, false, "mamba"}}, "jamba");
  check({{mixer.name, mixer.shape, true, "linear"},
         {"backbone.layers.0.mixer.x_proj.weight", {288, 8192}, false, "mamba"},
         {"backbone.layers.0.mixer.dt_proj.weight", {8192, 256}, false, "mamba"}});
}

TEST(Select, TablesAloneAreNoLinearLayers) {
  const auto linear = [](const char* name) { return classify(tensor(name, {64, 64})).linear; };
  for (const char* name : {"model.embed_tokens.weight", "transformer.wte.weight", "shared.weight",
                           "model.language_model.embed_tokens_per_layer.weight"})
    EXPECT_FALSE(linear(name)) << name;
  for (const char* name :
       {"model.language_model.altup_unembed_projections.0.weight", "context_embedder.weight",
        "time_text_embed.timestep_embedder.linear_1.weight", "img_in.weight"})
    EXPECT_TRUE(linear(name)) << name;
  EXPECT_TRUE(linear("transformer.blocks.0.ffn.experts.mlp.w1"));
}

TEST(Select, HybridsAndDiffusion) {
  check(
      {{"backbone.embeddings.weight", {131072, 4480}, false, "embedding"},
       {"backbone.layers.0.mixer.in_proj.weight", {22656, 4480}, true, "linear"},
       {"backbone.layers.0.mixer.conv1d.weight", {12288, 1, 4}, false, "convolution"},
       {"backbone.layers.0.mixer.A_log", {128}, false, "vector"},
       {"backbone.layers.0.mixer.dt_bias", {128}, false, "bias"},
       {"backbone.norm_f.weight", {4480}, false, "norm"},
       {"model.layers.0.linear_attn.in_proj_qkv.weight", {8192, 2048}, true, "linear"},
       {"model.layers.0.linear_attn.in_proj_ba.weight", {64, 2048}, false, "decay"},
       {"model.layers.0.linear_attn.in_proj_a.weight", {32, 2048}, false, "decay"},
       {"model.layers.0.mixer.in_proj_a.weight", {32, 2048}, true, "linear"},
       {"model.layers.0.conv.in_proj.weight", {6144, 2048}, true, "linear"},
       {"transformer_blocks.0.attn.to_q.weight", {3072, 3072}, true, "linear"},
       {"transformer_blocks.0.ff.net.0.proj.weight", {12288, 3072}, true, "linear"},
       {"transformer_blocks.0.norm1.linear.weight", {18432, 3072}, false, "norm"},
       {"time_text_embed.timestep_embedder.linear_1.weight", {3072, 256}, false, "embedding"},
       {"x_embedder.weight", {3072, 64}, false, "embedding"},
       {"condition_embedder.image_embedder.ff.net.0.proj.weight", {5120, 1280}, false, "embedding"},
       {"time_in.in_layer.weight", {3072, 256}, false, "embedding"},
       {"model.diffusion_model.img_in.weight", {3072, 64}, false, "embedding"},
       {"final_layer.linear.weight", {64, 3072}, false, "lm_head"},
       {"all_final_layer.2-1.linear.weight", {64, 3840}, false, "lm_head"},
       {"double_blocks.0.img_mod.lin.weight", {18432, 3072}, false, "modulation"},
       {"single_transformer_blocks.0.proj_out.weight", {3072, 15360}, false, "linear"},
       {"single_transformer_blocks.0.proj_mlp.weight", {12288, 3072}, true, "linear"},
       {"proj_out.weight", {64, 3072}, false, "lm_head"}});
}

TEST(Select, DtypesAndDepthsThatCannotBeQuantized) {
  const auto f8 = classify(tensor("a.q_proj.weight", {64, 64}, safetensors::DType::f8_e4m3));
  EXPECT_FALSE(f8.quantize);
  EXPECT_THAT(f8.reason, HasSubstr("F8_E4M3"));
  const auto odd = classify(tensor("a.q_proj.weight", {64, 72}));
  EXPECT_FALSE(odd.quantize);
  EXPECT_THAT(odd.reason, HasSubstr("72"));
  EXPECT_TRUE(classify(tensor("a.q_proj.weight", {64, 64}, safetensors::DType::f16)).quantize);
  EXPECT_TRUE(classify(tensor("a.q_proj.weight", {64, 64}, safetensors::DType::f32)).quantize);
  EXPECT_FALSE(classify(tensor("a.q_proj.weight", {0, 64})).quantize);
  EXPECT_FALSE(classify(tensor("h.0.attn.c_attn.weight", {768, 2304}), "gpt2").quantize);
}

TEST(Select, IgnoreWinsOverIncludeWinsOverTheDefaults) {
  Selector selector({"*.v_proj"}, {"lm_head", "*.v_proj"}, "");
  EXPECT_TRUE(selector.select(tensor("lm_head.weight", {64, 64})).quantize);
  const Selection v = selector.select(tensor("a.v_proj.weight", {64, 64}));
  EXPECT_FALSE(v.quantize);
  EXPECT_EQ(v.reason, "--ignore *.v_proj");
  EXPECT_TRUE(selector.select(tensor("a.q_proj.weight", {64, 64})).quantize);
}

TEST(Select, IncludingTheUnquantizableByNameIsAnError) {
  Selector exact({}, {"model.norm"}, "");
  expect_error<ValueError>([&] { exact.select(tensor("model.norm.weight", {64})); },
                           {"--include model.norm", "1-D"});
  Selector glob({}, {"model.*"}, "");
  EXPECT_FALSE(glob.select(tensor("model.norm.weight", {64})).quantize);
  EXPECT_TRUE(glob.select(tensor("model.embed_tokens.weight", {64, 64})).quantize);
}

TEST(Select, UnexpectedIncludedModulesAreWarnedAbout) {
  Selector selector({}, {"a.*", "lm_head", "*.q_proj"}, "");
  selector.select(tensor("a.mlp.gate.weight", {8, 64}));
  selector.select(tensor("a.embed_tokens.weight", {64, 64}));
  selector.select(tensor("lm_head.weight", {64, 64}));
  selector.select(tensor("b.q_proj.weight", {64, 64}));
  EXPECT_EQ(selector.warnings(),
            (std::vector<std::string>{
                "--include a.*: most loaders build a.mlp.gate (router) and 1 more "
                "unquantized",
                "--include lm_head: most loaders build lm_head (lm_head) unquantized"}));
}

TEST(Select, PatternsWithoutEffectAreNamed) {
  Selector selector({"nothing.*"}, {"neither"}, "");
  selector.select(tensor("a.q_proj.weight", {64, 64}));
  const auto warnings = selector.warnings();
  ASSERT_EQ(warnings.size(), 2u);
  EXPECT_THAT(warnings[0], HasSubstr("nothing.*"));
  EXPECT_THAT(warnings[1], HasSubstr("neither"));
}

}  // namespace nvfp4::checkpoint::select_test
