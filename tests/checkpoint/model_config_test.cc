#include "checkpoint/families/model_config.h"

#include "checkpoint/formats/declared.h"
#include "checkpoint/io/json_text.h"
#include "testing.h"

namespace nvfp4::checkpoint::model_config_test {

TEST(ModelConfig, AddsTheQuantizationAndKeepsEveryOtherByte) {
  const std::string text =
      "{\n  \"b\": 1e-05,\n  \"a\": [0.0, Infinity],\n  \"c\": \"NaN \\\"}\"\n}\n";
  const ModelConfig config = parse_model_config(text, "config.json");
  const std::string out = with_quantization_config(config, Json{{"x", 1}});
  EXPECT_TRUE(
      out.starts_with("{\n  \"b\": 1e-05,\n  \"a\": [0.0, Infinity],\n  \"c\": \"NaN \\\"}\""))
      << out;
  EXPECT_TRUE(out.ends_with(",\n  \"quantization_config\": {\n    \"x\": 1\n  }\n}\n")) << out;
}

TEST(ModelConfig, EmptyObjectAndNullKeyStayJson) {
  for (const char* text : {"{}", "{ }\n", "{\"quantization_config\": null, \"a\": 2}"}) {
    const std::string out =
        with_quantization_config(parse_model_config(text, "config.json"), Json{{"x", 1}});
    EXPECT_EQ(Json::parse(out)["quantization_config"]["x"], 1) << out;
  }
  EXPECT_EQ(Json::parse(with_quantization_config({}, Json{{"x", 1}})),
            Json::parse("{\"quantization_config\": {\"x\": 1}}"));
}

TEST(ModelConfig, ReadsTheLanguageModelOfAMultimodalOne) {
  const ModelConfig config = parse_model_config(
      R"({"model_type": "qwen3_vl_moe", "vision_config": {"hidden_size": 7},
          "text_config": {"model_type": "qwen3_vl_moe_text", "hidden_size": 2048}})",
      "config.json");
  EXPECT_EQ(config.hidden_size, 2048);
  EXPECT_TRUE(config.is("qwen3_vl_moe"));
  EXPECT_TRUE(config.is("qwen3_vl_moe_text"));
}

TEST(ModelConfig, ReplacesAQuantizationAndNothingElse) {
  const Json ours = {{"x", 1}};
  for (const std::string text : {
           R"({"a": 1e-05, "quantization_config": {"b": ["}", {"c": "\"]"}]}, "d": Infinity})",
           R"({"quantization_config": null, "a": 1e-05, "d": Infinity})",
           "{\n  \"a\": 1e-05,\n  \"d\": Infinity,\n  \"quantization_config\": {}\n}\n",
           R"({"a": 1e-05, "e": {"quantization_config": 7}, "d": Infinity})",
           R"({"a": 1e-05, "compression_config": {"b": 1}, "d": Infinity})",
       }) {
    const ModelConfig config = parse_model_config(text, "config.json");
    const std::string without = without_quantization_config(config);
    EXPECT_THAT(without, Not(HasSubstr("\"b\"")));
    EXPECT_THAT(without, HasSubstr("\"a\": 1e-05"));
    EXPECT_THAT(without, HasSubstr("\"d\": Infinity"));
    const Json plain = parse_config_json(without, "config.json");
    EXPECT_FALSE(plain.contains("quantization_config")) << without;
    const std::string with = with_quantization_config(config, ours);
    EXPECT_EQ(parse_config_json(with, "config.json").at("quantization_config"), ours);
    // Once more changes nothing: conversions there and back end where they began.
    EXPECT_EQ(with_quantization_config(parse_model_config(with, "config.json"), ours), with);
  }
}

TEST(ModelConfig, TakesEveryQuantizationOutHoweverItIsWritten) {
  const Json ours = {{"x", 1}};
  const std::pair<const char*, const char*> cases[] = {
      {R"({"quantization_config": {"b": 1}, "a": 1e-05, "quantization_config": 2})",
       R"({ "a": 1e-05})"},
      {R"({"a": 1e-05, "quantization\u005fconfig": {"b": 1} })", R"({"a": 1e-05 })"},
      {R"({"quantization_config":{},"\u0071uantization_config":{} , "a":[NaN] ,"c":"\\" })",
       R"({ "a":[NaN] ,"c":"\\" })"},
      {R"({"a": "\"quantization_config\": {", "quantization_config": "}", "c": -Infinity})",
       R"({"a": "\"quantization_config\": {", "c": -Infinity})"},
      {"{\"quantization_config\": {}, \"quantization_config\": {}\n}", "{\n}"},
      {R"({"text_config": {"a": Infinity, "quantization_config": {"b": 1}, "c": 1e-05},
           "vision_config": {"quantization_config": {}}, "d": [{"quantization_config": 1}]})",
       R"({"text_config": {"a": Infinity, "c": 1e-05},
           "vision_config": {}, "d": [{"quantization_config": 1}]})"},
      {R"({"thinker_config": {"text_config": {"quantization\u005fconfig": {}, "a": NaN}}})",
       R"({"thinker_config": {"text_config": { "a": NaN}}})"},
  };
  for (const auto& [text, expected] : cases) {
    const ModelConfig config = parse_model_config(text, "config.json");
    EXPECT_EQ(without_quantization_config(config), expected);
    const std::string with = with_quantization_config(config, ours);
    EXPECT_EQ(parse_config_json(with, "config.json").at("quantization_config"), ours) << with;
    EXPECT_EQ(without_quantization_config(parse_model_config(with, "config.json")),
              without_quantization_config(
                  parse_model_config(with_quantization_config(config, 7), "config.json")));
  }
}

TEST(ModelConfig, ChangesTheDtypeAndNothingElse) {
  const std::pair<const char*, const char*> cases[] = {
      {R"({"torch_dtype":"bfloat16","time_step_limit":[0.0,Infinity]})",
       R"({"torch_dtype":"float16","time_step_limit":[0.0,Infinity]})"},
      {R"({"a": [NaN, -Infinity, 1.50], "dtype" : "bfloat16" , "torch_dtype": "float32"})",
       R"({"a": [NaN, -Infinity, 1.50], "dtype" : "float16" , "torch_dtype": "float32"})"},
      {R"({"text_config": {"d\u0074ype": "bfloat16"}, "dtype": "bfloat\u00316", "e": {"e": Infinity}})",
       R"({"text_config": {"d\u0074ype": "float16"}, "dtype": "float16", "e": {"e": Infinity}})"},
      {R"({"dtype": "bfloat16", "dtype": "bfloat16"})",
       R"({"dtype": "float16", "dtype": "float16"})"},
      {R"({"a": ["dtype", "bfloat16"], "dtype": "float16"})",
       R"({"a": ["dtype", "bfloat16"], "dtype": "float16"})"},
  };
  for (const auto& [text, expected] : cases) EXPECT_EQ(with_dtype(text, "float16"), expected);
}

/// Half a minute, if the time grew with the square of the keys.
TEST(ModelConfig, HasManyKeysAndQuantizedLayers) {
  std::string text = "{\"quantization_config\": {\"quantized_layers\": {";
  for (int i = 0; i < 20'000; ++i)
    text += fmt::format("{}\"model.layers.{}.q_proj\": {{\"quant_algo\": \"NVFP4\"}}",
                        i == 0 ? "" : ", ", i);
  text += "}}";
  for (int i = 0; i < 20'000; ++i) text += fmt::format(", \"key{}\": {}", i, i);
  text += "}";
  const std::optional<Declared> declared = declared_in_config(text, "config.json");
  ASSERT_TRUE(declared);
  EXPECT_EQ(declared->layers.size(), 20'000u);
  const std::string with =
      with_quantization_config(parse_model_config(text, "config.json"), declared->json);
  const Json json = Json::parse(with);
  EXPECT_EQ(json["key19999"], 19999);
  EXPECT_EQ(json["quantization_config"], declared->json);
}

TEST(ModelConfig, RefusesWhatIsNotAnObject) {
  expect_error<FormatError>([] { parse_model_config("[1]", "config.json"); }, {"object"});
  EXPECT_THROW(parse_model_config("{\"a\": ", "config.json"), FormatError);
}

TEST(ModelConfig, ErrorsInItsTextAreShort) {
  const std::string number = "1e999" + std::string(100'000, '9');
  for (const std::string& text :
       {"{\"a\": \"" + std::string(100'000, 'x'), "{\"a\": " + number + "}"}) {
    try {
      parse_model_config(text, "config.json");
      ADD_FAILURE() << "no error";
    } catch (const FormatError& e) {
      const std::string message = e.what();
      EXPECT_TRUE(message.starts_with("config.json: ")) << message.substr(0, 500);
      EXPECT_LT(message.size(), 400u);
      EXPECT_THAT(message, Not(HasSubstr("json.exception"))) << message.substr(0, 500);
    }
  }
}

}  // namespace nvfp4::checkpoint::model_config_test
