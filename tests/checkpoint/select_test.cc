#include "checkpoint/families/select.h"

#include "checkpoint/case_table.h"
#include "checkpoint/families/model_config.h"
#include "checkpoint/recipe/recipe.h"
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

TEST(Select, KindsOfTensors) {
  for (const table::Row& row : table::rows_of("select.txt")) {
    const Selection s = classify(tensor(row.name, table::shape_of(row.column(0))), row.column(3));
    EXPECT_EQ(s.quantize ? "quantized" : "excluded", row.column(1)) << row.name << ": " << s.reason;
    EXPECT_EQ(s.kind, row.column(2)) << row.name;
    if (!row.column(4).empty()) {
      EXPECT_EQ(layer_kind(row.name, s), row.column(4)) << row.name;
    }
    EXPECT_EQ(s.reason.empty(), s.quantize) << row.name << ": " << s.reason;
  }
}

/// By name, and DeepSeek's by the number of its layer.
TEST(Select, LayersForMultiTokenPredictionAreKept) {
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
