// Exclusions that hold under the names that loaders give to modules, too.
#include "checkpoint/formats/renamed.h"

#include "checkpoint/match/expression.h"
#include "testing.h"

namespace nvfp4::checkpoint::renamed_test {

class Entries {
 public:
  Entries(const std::vector<KeptModule>& kept, const std::vector<std::string>& quantized,
          const std::vector<std::string>& types = {}) {
    ConfigFacts facts = {Scheme::nvfp4, kept, quantized};
    facts.model_types = types;
    entries_ = renamed_excludes(facts);
    for (const std::string& module : quantized) EXPECT_FALSE(hold(module)) << module;
  }

  /// Matches like compressed-tensors: re.match, from the start of the name.
  bool hold(const std::string& module) const {
    return std::ranges::any_of(entries_, [&](const std::string& entry) {
      EXPECT_TRUE(entry.starts_with("re:")) << entry;
      return Expression(entry.substr(3), Expression::Extent::start).matches(module);
    });
  }
  bool empty() const { return entries_.empty(); }

 private:
  std::vector<std::string> entries_;
};

TEST(RenamedExcludes, HoldForTowersUnderTheNamesOfTransformers) {
  const Entries qwen({{"visual.blocks.0.attn.qkv"}, {"visual.merger.mlp.0"}, {"lm_head"}},
                     {"model.layers.0.mlp.up_proj", "model.layers.0.self_attn.q_proj"});
  for (const char* name : {"visual.blocks.0.attn.qkv", "model.visual.blocks.31.mlp.up_proj",
                           "model.visual.merger.mlp.2", "lm_head"})
    EXPECT_TRUE(qwen.hold(name)) << name;
  EXPECT_FALSE(qwen.hold("model.language_model.layers.0.mlp.up_proj"));

  const Entries llava({{"vision_tower.vision_model.encoder.layers.0.self_attn.q_proj"},
                       {"multi_modal_projector.linear_1"},
                       {"language_model.lm_head"},
                       {"language_model.model.layers.1.self_attn.q_proj"}},
                      {"language_model.model.layers.0.self_attn.q_proj"});
  for (const char* name : {"model.vision_tower.encoder.layers.0.self_attn.q_proj",
                           "model.multi_modal_projector.linear_2", "lm_head",
                           "model.language_model.layers.1.self_attn.q_proj"})
    EXPECT_TRUE(llava.hold(name)) << name;
  EXPECT_FALSE(llava.hold("model.language_model.layers.0.self_attn.q_proj"));
  EXPECT_FALSE(llava.hold("model.language_model.layers.11.self_attn.q_proj"));
}

TEST(RenamedExcludes, NeverCoverWhatIsQuantizedOfATower) {
  // A layer of the tower that --include quantized.
  const Entries entries({{"model.visual.blocks.0.attn.qkv"}, {"model.projector.linear"}},
                        {"model.visual.blocks.1.attn.qkv", "model.layers.0.attn.qkv"});
  EXPECT_TRUE(entries.hold("model.visual.blocks.0.attn.qkv"));
  EXPECT_TRUE(entries.hold("projector.linear"));
  // One of the language model under the same end.
  Entries({{"tower.proj"}, {"a.layers.0.q_proj"}}, {"b.layers.0.q_proj"});
}

TEST(RenamedExcludes, AreNoneForAModelWithoutTowers) {
  EXPECT_TRUE(Entries({{"lm_head"},
                       {"model.embed_tokens", false},
                       {"model.layers.0.mlp.gate"},
                       {"model.layers.1.mlp.up_proj"}},
                      {"model.layers.0.mlp.experts.0.up_proj"})
                  .empty());
}

TEST(RenamedExcludes, HoldForHeadsThatShareTheEmbedding) {
  const std::vector<std::string> quantized = {"model.decoder.layers.0.fc1"};
  EXPECT_TRUE(Entries({}, quantized, {"whisper"}).hold("proj_out"));
  EXPECT_TRUE(Entries({}, quantized, {"bert"}).hold("cls.predictions.decoder"));
  EXPECT_TRUE(Entries({}, quantized, {"modernbert"}).hold("decoder"));
  EXPECT_TRUE(Entries({}, quantized, {"blip-2"}).hold("language_model.lm_head"));
  EXPECT_TRUE(Entries({}, quantized, {"kosmos-2.5"}).hold("text_model.lm_head"));
  EXPECT_TRUE(Entries({}, quantized, {"bark"}).hold("fine_acoustics.lm_heads.3"));
  EXPECT_FALSE(Entries({}, {"a.lm_heads.1"}, {"bark"}).hold("a.lm_heads.1"));
  EXPECT_TRUE(Entries({}, quantized, {"llama"}).empty());
  EXPECT_FALSE(Entries({}, {"proj_out"}, {"whisper"}).hold("proj_out"));
}

TEST(RenamedExcludes, EscapeWhatIsNoLetter) {
  const Entries entries({{"to+er.(a"}}, {"toer.b"});
  EXPECT_TRUE(entries.hold("to+er.b"));
}

}  // namespace nvfp4::checkpoint::renamed_test
