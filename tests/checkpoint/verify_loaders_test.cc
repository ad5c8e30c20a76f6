#include "checkpoint/checkpoints.h"
#include "checkpoint/faults.h"

/// Tests of the verdicts of loaders: reads, refuses or misreads.
namespace nvfp4::verify_loaders_test {

using namespace faults;
using enum Verdict;
using Verdicts = std::map<std::string, Verdict>;

Verdicts verdicts_of(const VerifyReport& report) {
  Verdicts verdicts;
  for (const LoaderVerdict& v : report.loaders) verdicts[v.loader] = v.verdict;
  return verdicts;
}

class VerifyLoaders : public testing::Test {
 protected:
  VerifyLoaders() {
    write_tiny_llama(bed_.source);
    bed_.options.path = bed_.output;
  }
  void quantize(const std::string& format, Scheme scheme = Scheme::nvfp4a16) {
    auto options = quantize_options(bed_.source, bed_.output);
    options.format = format;
    options.scheme = scheme;
    std::filesystem::remove_all(options.output);
    quantize_checkpoint(options);
  }
  VerifyReport report(const std::string& loader = "") {
    bed_.options.loader = loader;
    return verify_checkpoint(bed_.options);
  }
  bool broken_for(const std::string& loader) { return report(loader).broken(); }

  TempDir dir_;
  Bed bed_{dir_ / "source", dir_ / "output", {}};
};

TEST_F(VerifyLoaders, OnlyTheRequestedLoaderDecides) {
  quantize("modelopt");
  const VerifyReport all = report();
  EXPECT_EQ(verdicts_of(all), (Verdicts{{"vllm", reads},
                                        {"sglang", reads},
                                        {"tensorrt-llm", reads},
                                        {"transformers", refuses},
                                        {"llama.cpp", reads}}));
  EXPECT_FALSE(all.broken());
  EXPECT_TRUE(all.findings.empty()) << text_of(all);
  for (const std::string_view loader : known_loaders()) {
    const VerifyReport one = report(std::string(loader));
    ASSERT_EQ(one.loaders.size(), 1u);
    EXPECT_EQ(one.broken(), loader == "transformers") << loader;
    EXPECT_EQ(one.loaders[0].verdict == reads, !one.broken()) << loader;
  }
  const auto json = nlohmann::json::parse(to_json(all)).at("loaders");
  EXPECT_EQ(json.at("vllm").at("verdict"), "reads");
  EXPECT_EQ(json.at("transformers").at("verdict"), "refuses");
  EXPECT_EQ(json.at("transformers").at("code"), "loader-format");
}

TEST_F(VerifyLoaders, FaultIsJudgedByEachLoader) {
  quantize("modelopt", Scheme::nvfp4);
  plants().at("fused-globals")(bed_);
  EXPECT_TRUE(report().broken());
  EXPECT_EQ(verdicts_of(report()), (Verdicts{{"vllm", misreads},
                                             {"sglang", misreads},
                                             {"tensorrt-llm", refuses},
                                             {"transformers", refuses},
                                             {"llama.cpp", reads}}));
  EXPECT_FALSE(broken_for("llama.cpp")) << "it fuses nothing";
  quantize("modelopt", Scheme::nvfp4);
  plants().at("fused-input-scales")(bed_);
  EXPECT_FALSE(report().broken());
  EXPECT_TRUE(broken_for("tensorrt-llm"));
  EXPECT_FALSE(broken_for("vllm"));
}

TEST_F(VerifyLoaders, FormatWithoutLoaderIsNotBroken) {
  quantize("comfyui");
  EXPECT_FALSE(report().broken()) << text_of(report());
  for (const std::string_view loader : known_loaders())
    EXPECT_TRUE(broken_for(std::string(loader))) << loader;
}

TEST_F(VerifyLoaders, UnreadableByAllLoadersIsBroken) {
  VerifyReport report;
  report.loaders = {{"vllm", refuses, "loader-format", "", 1},
                    {"transformers", misreads, "experts-lose-global-scale", "", 1}};
  EXPECT_TRUE(report.broken());
  report.loaders[1] = {"transformers", reads, "", "", 0};
  EXPECT_FALSE(report.broken());
  report.loaders.pop_back();
  EXPECT_FALSE(report.broken()) << "a format of none of them";
}

/// Found by loading tiny models of these types with transformers 5.23 and compressed-tensors 0.20.
TEST_F(VerifyLoaders, TransformersInitializesSomeLayersByTheirWeight) {
  struct Case {
    const char* type;
    const char* module;
    bool refused;
  };
  const Case cases[] = {
      {"t5", "encoder.block.0.layer.0.SelfAttention.q", true},
      {"t5", "decoder.block.0.layer.2.DenseReluDense.wi_1", true},
      {"falcon", "transformer.h.0.self_attention.query_key_value", true},
      {"mamba2", "backbone.layers.0.mixer.out_proj", true},
      {"mamba2", "backbone.layers.0.mixer.in_proj", false},
      {"modernbert", "model.layers.0.attn.Wqkv", true},
      {"ijepa", "ijepa.encoder.layer.0.attention.attention.query", true},  // q_proj in transformers
      {"eomt", "layers.0.attention.q_proj", true},
      {"llama", "model.layers.0.self_attn.q_proj", false},
  };
  for (const Case& c : cases) {
    bed_.only(c.module, {64, 64}, {}, "compressed-tensors");
    bed_.edit([&](LoadedFolder& f) { f.config["model_type"] = c.type; });
    EXPECT_EQ(codes_of(report("transformers")).contains("init-needs-weight"), c.refused)
        << c.type << ' ' << c.module;
    EXPECT_EQ(broken_for("transformers"), c.refused) << c.type << ' ' << c.module;
    EXPECT_FALSE(broken_for("vllm"));
    EXPECT_FALSE(report().broken());
  }
}

TEST_F(VerifyLoaders, SoDoesAModelWithinAnother) {
  const auto refused = [&](const char* module, const nlohmann::json& parts) {
    bed_.only(module, {64, 64}, {}, "compressed-tensors");
    bed_.edit([&](LoadedFolder& f) { f.config.update(parts); });
    return codes_of(report("transformers")).contains("init-needs-weight");
  };
  const nlohmann::json nested = {{"model_type", "colmodernvbert"},
                                 {"vlm_config",
                                  {{"model_type", "modernvbert"},
                                   {"text_config", {{"model_type", "modernbert"}}},
                                   {"vision_config", {{"model_type", "siglip_vision_model"}}}}}};
  EXPECT_TRUE(refused("vlm.model.text_model.layers.0.attn.Wqkv", nested));
  EXPECT_TRUE(refused("vlm.model.vision_model.encoder.layers.0.self_attn.q_proj", nested));
  EXPECT_FALSE(refused("vlm.model.text_model.layers.0.self_attn.q_proj", nested)) << "of the tower";
  for (const char* key : {"vit_config", "encoder", "image_config", "audio_config", "speech_config"})
    EXPECT_FALSE(refused("model.layers.0.self_attn.k_proj",
                         {{"model_type", "bagel"},
                          {"text_config", {{"model_type", "qwen2"}}},
                          {"vlm_config", nlohmann::json::object()},
                          {key, {{"model_type", "siglip_vision_model"}}}}))
        << key;
}

/// A tower has a type of its own, and names that the language model beside it has, too.
TEST_F(VerifyLoaders, TheInitializationOfATowerIsItsOwn) {
  for (const std::string tower : {"vision_tower", "language_model"}) {
    bed_.only(tower + ".encoder.layers.0.self_attn.q_proj", {64, 64}, {}, "compressed-tensors");
    bed_.edit([](LoadedFolder& f) {
      f.config["model_type"] = "gemma3";
      f.config["vision_config"] = {{"model_type", "siglip_vision_model"}};
    });
    EXPECT_EQ(broken_for("transformers"), tower == "vision_tower") << text_of(report());
  }
}

TEST_F(VerifyLoaders, SoIsThatOfATowerForSound) {
  for (const std::string module : {"audio_tower.layers.0.query", "vision_tower.layers.0.query"}) {
    bed_.only(module, {64, 64}, {}, "compressed-tensors");
    bed_.edit([](LoadedFolder& f) {
      f.config["model_type"] = "qwen2_audio";
      f.config["audio_config"] = {{"model_type", "clap_audio_model"}};
      f.config["vision_config"] = {{"model_type", "llama4_vision_model"}};
    });
    EXPECT_EQ(broken_for("transformers"), module.starts_with("audio")) << text_of(report());
  }
}

TEST_F(VerifyLoaders, SplitWeightsLoseTheirScaleInTransformers) {
  struct Case {
    const char* type;
    const char* last;
    Verdict verdict;
  };
  const Case cases[] = {
      {"hrm_text", "gqkv_proj", misreads}, {"molmo2", "att_proj", refuses},
      {"molmo2", "ff_proj", refuses},      {"molmo2_text", "att_proj", refuses},
      {"molmo2_text", "ff_proj", refuses}, {"inkling_mm_model", "w13_dn", refuses},
      {"molmo2_text", "ff_out", reads},    {"inkling_mm_model", "ff_proj", reads},
      {"llama", "att_proj", reads},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(std::string(c.type) + " " + c.last);
    bed_.only(std::string("layers.0.mlp.") + c.last, {192, 64}, {}, "compressed-tensors");
    bed_.edit([&](LoadedFolder& f) { f.config["model_type"] = c.type; });
    const VerifyReport one = report("transformers");
    EXPECT_EQ(verdicts_of(one).at("transformers"), c.verdict) << text_of(one);
    EXPECT_EQ(one.loaders[0].code, c.verdict == reads ? "" : "split-loses-global-scale");
    EXPECT_EQ(text_of(one).find("and stops at its weight_global_scale") != std::string::npos,
              c.verdict == refuses)
        << text_of(one);
  }
}

TEST_F(VerifyLoaders, ExpertsOfLlama4BecomeLayersInTransformers) {
  for (const std::string type : {"qwen3_moe", "llama4_text", "llama4"}) {
    bed_.experts();
    bed_.edit([&](LoadedFolder& f) { f.config["model_type"] = type; });
    const VerifyReport one = report("transformers");
    EXPECT_EQ(one.broken(), type == "qwen3_moe") << text_of(one);
    EXPECT_EQ(one.loaders.at(0).verdict, type == "qwen3_moe" ? misreads : reads);
  }
}

/// Loaded with transformers 5.23: tests/python/test_loader_verdicts.py.
TEST_F(VerifyLoaders, ExcludedWeightsAreLostWhenMergedOrSplit) {
  struct Case {
    const char* type;
    const char* tensor;
    std::vector<std::int64_t> shape;
    Verdict verdict;
  };
  const std::string layer = "model.layers.0.";
  const Case cases[] = {
      {"qwen3_moe", "mlp.experts.0.up_proj.weight", {64, 64}, refuses},
      {"mixtral", "mlp.experts.1.w2.weight", {64, 64}, refuses},
      {"phi_of_someone", "mlp.experts.0.up_proj.weight", {64, 64}, reads},
      {"qwen3_moe", "mlp.experts.up_proj", {2, 64, 64}, reads},
      {"qwen3_moe", "mlp.shared_expert.up_proj.weight", {64, 64}, reads},
      {"qwen3_moe", "mlp.gate.weight", {64, 64}, reads},
      {"llama4_text", "feed_forward.experts.gate_up_proj", {2, 64, 64}, misreads},
      {"llama4_text", "feed_forward.experts.0.up_proj.weight", {64, 64}, reads},
      {"olmo_hybrid", "linear_attn.k_conv1d.weight", {64, 1, 4}, refuses},
      {"llama", "linear_attn.k_conv1d.weight", {64, 1, 4}, reads},
      {"qianfan_ocr", "attn.qkv.weight", {192, 64}, misreads},
      {"llama", "attn.qkv.weight", {192, 64}, reads},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(std::string(c.type) + ' ' + c.tensor);
    bed_.only(layer + "self_attn.o_proj", {64, 64}, {}, "compressed-tensors");
    for (const char* begin : {"model.layers.0.", "model.layers.1.", "mtp.layers.0."}) {
      bed_.edit([&](LoadedFolder& f) {
        const TestTensor kept = random_tensor(begin + std::string(c.tensor), c.shape);
        f.config["model_type"] = c.type;
        f.config["num_hidden_layers"] = 1;
        f.quantization()["ignore"] = {"re:.*(experts|expert|gate|conv1d|qkv).*"};
        auto& shard = f.shard_of(layer + "self_attn.o_proj.weight_packed");
        std::erase_if(shard, [](const TestTensor& t) {
          return t.spec.name.find("self_attn.o_proj") == std::string::npos;
        });
        shard.push_back(kept);
      });
      const VerifyReport one = report("transformers");
      const bool built = std::string(begin) == "model.layers.0.";
      EXPECT_EQ(codes_of(one).contains("kept-weight-lost"), built && c.verdict != reads) << begin;
      if (built && c.verdict != reads) {
        EXPECT_EQ(one.loaders.at(0).verdict, c.verdict);
      }
    }
  }
}

TEST_F(VerifyLoaders, VocabularyTablesAreNoLinearLayers) {
  struct Case {
    const char* module;
    bool tied;
    Verdict verdict;
  };
  const Case cases[] = {{"lm_head", true, refuses},
                        {"lm_head", false, reads},
                        {"cls.predictions.decoder", true, refuses},
                        {"model.shared", false, misreads},
                        {"model.layers.0.mlp.up_proj", true, reads}};
  for (const Case& c : cases) {
    bed_.only(c.module, {96, 64}, {}, "compressed-tensors");
    bed_.edit([&](LoadedFolder& f) {
      f.config["vocab_size"] = 96;
      f.config["tie_word_embeddings"] = c.tied;
    });
    EXPECT_EQ(verdicts_of(report())["transformers"], c.verdict) << c.module << c.tied;
  }
}

}  // namespace nvfp4::verify_loaders_test
