#include "checkpoint/families/transformers_names.h"

#include "checkpoint/checkpoints.h"
#include "checkpoint/faults.h"

/// Lists of a compressed-tensors configuration against the names that transformers 5 gives.
namespace nvfp4::transformers_names_test {

using namespace faults;
using checkpoint::TransformersNames;

TEST(TransformersNames, BeginningsAreReplaced) {
  struct Case {
    const char *type, *module, *name;
  };
  const Case cases[] = {
      {"qwen2_5_vl", "visual.blocks.0.attn.qkv", "model.visual.blocks.0.attn.qkv"},
      {"qwen2_5_vl", "model.layers.3.mlp.up_proj", "model.language_model.layers.3.mlp.up_proj"},
      {"qwen2_5_vl", "lm_head", "lm_head"},
      {"llava", "vision_tower.vision_model.encoder.layers.0.mlp.fc1",
       "model.vision_tower.encoder.layers.0.mlp.fc1"},
      {"llava", "multi_modal_projector.linear_1", "model.multi_modal_projector.linear_1"},
      {"llava", "language_model.model.layers.0.mlp.up_proj",
       "model.language_model.layers.0.mlp.up_proj"},
      {"llava", "language_model.lm_head", "lm_head"},
      {"gemma3", "vision_tower.vision_model.encoder.layers.0.mlp.fc1",
       "model.vision_tower.encoder.layers.0.mlp.fc1"},
      {"molmo2", "model.vision_backbone.image_vit.transformer.resblocks.7.attention.wq",
       "model.vision_tower.layers.7.self_attn.q_proj"},
      {"llama", "model.layers.0.mlp.up_proj", "model.layers.0.mlp.up_proj"},
      {"of another library", "visual.proj", "visual.proj"},
  };
  for (const Case& c : cases) {
    const TransformersNames names(c.type);
    EXPECT_EQ(names.name_of(c.module), c.name) << c.type;
    EXPECT_EQ(names.name_of(c.name), c.name) << c.type << ": checkpoints may have new names";
  }
}

TEST(TransformersNames, RoutersAreNoLinearLayers) {
  EXPECT_TRUE(TransformersNames("qwen3_moe").unlike_linear("model.layers.0.mlp.gate"));
  EXPECT_FALSE(TransformersNames("qwen3_moe").unlike_linear("model.layers.0.mlp.up_proj"));
  EXPECT_FALSE(TransformersNames("llama").unlike_linear("model.layers.0.mlp.gate"));
}

class VerifyNames : public testing::Test {
 protected:
  /// Modules of [64, 64], those with "mlp" quantized; `bare`: stored without ".weight".
  void write(const std::string& type, const std::vector<std::string>& modules,
             const std::string& bare = "") {
    std::vector<TestTensor> tensors;
    if (!bare.empty()) tensors.push_back(random_tensor(bare, {64, 64}));
    for (const std::string& module : modules)
      tensors.push_back(random_tensor(module + ".weight", {64, 64}));
    fs::remove_all(bed_.source);
    fs::remove_all(bed_.output);
    write_model(bed_.source, {tensors}, R"({"model_type": ")" + type + R"("})");
    auto options = quantize_options(bed_.source, bed_.output);
    options.format = "compressed-tensors";
    options.scheme = Scheme::nvfp4a16;
    options.ignore = {"re:^(?!.*mlp).*"};
    quantize_checkpoint(options);
    bed_.options.path = bed_.output;
  }
  void lists(const Json& ignore, const Json& targets = Json::array({"Linear"})) {
    bed_.edit([&](LoadedFolder& f) {
      f.quantization()["ignore"] = ignore;
      f.quantization()["config_groups"]["group_0"]["targets"] = targets;
    });
  }
  VerifyReport report(const std::string& loader) {
    bed_.options.loader = loader;
    return verify_checkpoint(bed_.options);
  }
  /// The text of the finding; empty if there is none.
  std::string found() {
    for (const Finding& f : report("transformers").findings)
      if (f.code == "names-differ") return f.text;
    return {};
  }

  TempDir dir_;
  Bed bed_{dir_ / "source", dir_ / "output", {}};
};

const std::vector<std::string> kQwen = {"visual.blocks.0.attn.qkv", "visual.merger.proj",
                                        "model.layers.0.mlp.up_proj",
                                        "model.layers.0.self_attn.q_proj", "lm_head"};

TEST_F(VerifyNames, WhatIsWrittenHereHoldsUnderBothNames) {
  write("qwen2_5_vl", kQwen);
  const VerifyReport ours = report("transformers");
  EXPECT_TRUE(ours.findings.empty()) << text_of(ours);
}

TEST_F(VerifyNames, CheckpointNamesDoNotHoldInTransformers) {
  write("qwen2_5_vl", kQwen);
  lists({"visual.blocks.0.attn.qkv", "visual.merger.proj", "model.layers.0.self_attn.q_proj",
         "lm_head"});
  const VerifyReport one = report("transformers");
  EXPECT_TRUE(one.broken());
  EXPECT_EQ(one.loaders.at(0).verdict, Verdict::misreads);
  EXPECT_EQ(codes_of(one), std::set<std::string>{"names-differ"}) << text_of(one);
  EXPECT_THAT(found(), HasSubstr(" and 2 more are not quantized"));
  EXPECT_THAT(found(), HasSubstr("'re:(.*\\.)?visual\\..*'"));
  EXPECT_FALSE(report("vllm").broken());
  EXPECT_FALSE(report("").broken());
}

TEST_F(VerifyNames, TheEntriesThatAFindingNamesCureIt) {
  write("qwen2_5_vl", kQwen);
  lists({"visual.blocks.0.attn.qkv", "visual.merger.proj", "model.layers.0.self_attn.q_proj",
         "lm_head"});
  Json entries = {"lm_head"};
  const std::string text = found();
  for (std::size_t at = text.find("; '"); at != text.npos;) {
    const std::size_t begin = text.find('\'', at) + 1, end = text.find('\'', begin);
    if (begin == 0 || end == text.npos) break;
    entries.push_back(text.substr(begin, end - begin));
    at = end + 1;
  }
  ASSERT_GT(entries.size(), 1u) << text;
  lists(entries);
  EXPECT_EQ(found(), "");
  EXPECT_FALSE(report("transformers").broken()) << text_of(report("transformers"));
}

TEST_F(VerifyNames, NamesWithoutExpressionAreListedTwice) {
  write("fuyu", {"language_model.model.layers.0.mlp.dense_h_to_4h", "vision_embed_tokens",
                 "language_model.lm_head"});
  EXPECT_EQ(found(), "") << "written here";
  lists({"vision_embed_tokens", "lm_head"});
  EXPECT_THAT(found(), HasSubstr("'model.vision_embed_tokens' would be"));
}

TEST_F(VerifyNames, MatrixWithoutWeightSuffixMayBeALayer) {
  const std::string up = "model.llm.layers.0.mlp.up_proj",
                    bare = "model.llm.layers.0.attn.k_sconv.weight_proj";
  write("inkling2_text", {up}, bare);
  EXPECT_EQ(found(), "") << "written here";
  EXPECT_TRUE(report("transformers").findings.empty()) << text_of(report("transformers"));
  lists({"lm_head"});
  EXPECT_THAT(found(), HasSubstr("'model.layers.0.self_attn.k_sconv.weight_proj' would be"));
  write("llama", {up}, bare);
  lists({"lm_head"});
  EXPECT_EQ(found(), "") << "no layer there, as far as is known";
}

TEST_F(VerifyNames, EntriesMustBeWholeNames) {
  write("llama", {"model.layers.0.mlp.up_proj", "model.layers.0.self_attn.q_proj", "lm_head"});
  lists({"layers.0.self_attn.q_proj", "lm_head"});
  EXPECT_THAT(found(), HasSubstr("'model.layers.0.self_attn.q_proj' would be"));
  lists({"*.q_proj", "lm_head"});
  EXPECT_NE(found(), "");
  for (const char* entry : {"model.layers.0.self_attn.q_proj", "re:.*q_proj", "re:model.*attn"}) {
    lists({entry, "lm_head"});
    EXPECT_EQ(found(), "") << entry;
  }
}

TEST_F(VerifyNames, QuantizedModulesAreTargetsUnderNewNames) {
  write("qwen2_5_vl", kQwen);
  const Json ignore = {"re:.*visual.*", "re:.*self_attn.*", "lm_head"};
  lists(ignore, {"re:model\\.layers\\..*mlp.*"});
  EXPECT_THAT(found(), HasSubstr("no target in config.json is its name in transformers 5, "
                                 "model.language_model.layers.0.mlp.up_proj"));
  lists(ignore, {"re:.*mlp.*"});
  EXPECT_EQ(found(), "");
  lists({"re:.*visual.*", "re:.*self_attn.*", "lm_head", "re:model.language_model.*up_proj"});
  EXPECT_THAT(found(), HasSubstr("'ignore' has its name"));
}

TEST_F(VerifyNames, RoutersNeedNoEntry) {
  write("qwen3_moe",
        {"model.layers.0.mlp.shared_expert.up_proj", "model.layers.0.mlp.gate", "lm_head"});
  lists({"layers.0.mlp.gate", "lm_head"});
  EXPECT_EQ(found(), "");
}

TEST_F(VerifyNames, ATiedHeadIsALinearLayerToo) {
  write("bert", {"bert.encoder.layer.0.mlp.dense", "bert.embeddings.word_embeddings"});
  const auto with_class = [&](const char* name) {
    bed_.edit([&](LoadedFolder& f) { f.config["architectures"] = {name}; });
  };
  with_class("BertForMaskedLM");
  EXPECT_EQ(found(), "") << "written here";
  lists({"lm_head"});
  EXPECT_THAT(found(), HasSubstr("'cls.predictions.decoder' would be"));
  EXPECT_EQ(report("transformers").loaders.at(0).verdict, Verdict::refuses);
  with_class("BertModel");
  EXPECT_EQ(found(), "");
}

TEST_F(VerifyNames, SoIsThatOfALanguageModelWithin) {
  write("blip-2", {"language_model.model.decoder.layers.0.mlp.fc1"});
  bed_.edit(
      [&](LoadedFolder& f) { f.config["architectures"] = {"Blip2ForConditionalGeneration"}; });
  EXPECT_EQ(found(), "") << "written here";
  lists({"lm_head"});
  EXPECT_THAT(found(), HasSubstr("'language_model.lm_head' would be"));
}

TEST_F(VerifyNames, TiedHeadOfTheUsualNameToo) {
  write("llama", {"model.layers.0.mlp.up_proj", "model.embed_tokens"});
  bed_.edit([&](LoadedFolder& f) {
    f.config["architectures"] = {"LlamaForCausalLM"};
    f.config["tie_word_embeddings"] = true;
  });
  EXPECT_EQ(found(), "") << "written here";
  lists(Json::array());
  EXPECT_THAT(found(), HasSubstr("'lm_head' would be"));
  bed_.edit([&](LoadedFolder& f) { f.config["tie_word_embeddings"] = false; });
  EXPECT_EQ(found(), "");
}

}  // namespace nvfp4::transformers_names_test
