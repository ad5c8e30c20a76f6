#include "checkpoint/checkpoints.h"

namespace nvfp4::safetensors::safetensors_index_test {

void expect_refused(const std::string& json, std::initializer_list<std::string_view> parts) {
  expect_error<FormatError>([&] { parse_index(json, "model.index"); }, {"model.index: "});
  expect_error<FormatError>([&] { parse_index(json, "model.index"); }, parts);
}

TEST(SafetensorsIndex, ReadsWhatHuggingFaceWrites) {
  const Index index = parse_index(
      R"({"metadata": {"total_size": 12, "total_parameters": 6, "x": [{"total_size": "no"}]},
          "weight_map": {"b": "model-2.safetensors", "a": "model-1.safetensors"}, "y": [1, {}]})",
      "model.index");
  EXPECT_EQ(index.total_size, 12u);
  EXPECT_EQ(index.weight_map, (std::map<std::string, std::string>{{"a", "model-1.safetensors"},
                                                                  {"b", "model-2.safetensors"}}));
}

TEST(SafetensorsIndex, TakesAMissingTotalSizeForZero) {
  EXPECT_EQ(parse_index(R"({"weight_map":{"a":"x"}})", "i").total_size, 0u);
  EXPECT_EQ(parse_index(R"({"metadata":{},"weight_map":{"a":"x"}})", "i").total_size, 0u);
}

TEST(SafetensorsIndex, ReadsATotalSizeWrittenAsAFloat) {
  const auto size = [](const std::string& text) {
    return parse_index(R"({"weight_map":{"a":"x"},"metadata":{"total_size":)" + text + "}}", "i")
        .total_size;
  };
  EXPECT_EQ(size("16060522496.0"), 16060522496u);
  EXPECT_EQ(size("1.6e10"), 16000000000u);
  EXPECT_EQ(size("18446744073709551615"), 18446744073709551615u);
}

TEST(SafetensorsIndex, RefusesAnInvalidTotalSize) {
  for (const char* size :
       {"-1", "1.5", "-0.5", "1e20", "18446744073709551616", "\"1\"", "null", "true", "[1]", "{}"})
    expect_refused(fmt::format(R"({{"metadata":{{"total_size":{}}},"weight_map":{{}}}})", size),
                   {"metadata.total_size", "must be a non-negative integer"});
}

TEST(SafetensorsIndex, RefusesInvalidJson) {
  for (const char* json :
       {"", "{", "{\"weight_map\":{}", "{\"weight_map\":{}}x", "{\"weight_map\":{\"\xff\":\"a\"}}"})
    expect_refused(json, {"invalid JSON at byte"});
  expect_refused(std::string("{\"weight_map\":{}}\0{", 19), {"NUL"});
}

TEST(SafetensorsIndex, RefusesWhatIsNoObject) {
  for (const char* json : {"[]", "1", "null", "\"weight_map\""})
    expect_refused(json, {"must be an object"});
}

TEST(SafetensorsIndex, RefusesAMissingWeightMap) {
  expect_refused("{}", {"weight_map is missing"});
  expect_refused(R"({"weight_map":{}})", {"weight_map is empty"});
  expect_refused(R"({"metadata":{"weight_map":{}}})", {"weight_map is missing"});
}

TEST(SafetensorsIndex, RefusesSectionsThatAreNoObjects) {
  for (const char* value : {"1", "null", "[]", "\"a\""}) {
    expect_refused(fmt::format(R"({{"weight_map":{}}})", value), {"weight_map = ", "an object"});
    expect_refused(fmt::format(R"({{"weight_map":{{}},"metadata":{}}})", value),
                   {"metadata = ", "an object"});
  }
}

TEST(SafetensorsIndex, RefusesDuplicateKeys) {
  expect_refused(R"({"weight_map":{"a":"x","a":"x"}})", {"key 'a' appears twice"});
  expect_refused(R"({"weight_map":{},"weight_map":{}})", {"key 'weight_map' appears twice"});
  expect_refused(R"({"weight_map":{},"y":[{"z":1,"z":2}]})", {"key 'z' appears twice"});
}

TEST(SafetensorsIndex, RefusesFileNamesThatLeaveTheFolder) {
  for (const char* name :
       {"", ".", "..", "/etc/passwd", "../a", "a/b", "a\\\\b", "a\\u0000b", "./a", "a/"})
    expect_refused(fmt::format(R"({{"weight_map":{{"layer.w":"{}"}}}})", name),
                   {"tensor 'layer.w'", "must be the name of a file"});
  EXPECT_EQ(parse_index(R"({"weight_map":{"a":"..a..b"}})", "i").weight_map.at("a"), "..a..b");
}

TEST(SafetensorsIndex, RefusesFileNamesThatAreNoStrings) {
  for (const char* name : {"1", "null", "[]", "{}", "[\"a\"]"})
    expect_refused(fmt::format(R"({{"weight_map":{{"layer.w":{}}}}})", name),
                   {"tensor 'layer.w'", "must be"});
}

TEST(SafetensorsIndex, RefusesDeepNesting) {
  expect_refused("{\"x\":" + std::string(1'000'000, '['), {"nested deeper than 16 levels"});
}

TEST(SafetensorsIndex, WritesWhatHuggingFaceWrites) {
  Index index;
  index.total_size = 16060522496;
  index.weight_map = {{"b", "model-2.safetensors"}, {"a", "model-1.safetensors"}};
  EXPECT_EQ(index_json(index),
            "{\n  \"metadata\": {\n    \"total_size\": 16060522496\n  },\n"
            "  \"weight_map\": {\n    \"a\": \"model-1.safetensors\",\n"
            "    \"b\": \"model-2.safetensors\"\n  }\n}\n");
}

TEST(SafetensorsIndex, ReadsBackWhatItWrote) {
  Index index;
  index.total_size = ~std::uint64_t{0};
  index.weight_map = {{"quote\"\n\xc3\xa9", "model \xe6\xa8\xa1.safetensors"}};
  const Index again = parse_index(index_json(index), "i");
  EXPECT_EQ(again.total_size, index.total_size);
  EXPECT_EQ(again.weight_map, index.weight_map);
  EXPECT_THROW(parse_index(index_json({}), "i"), FormatError);
}

TEST(SafetensorsIndex, RefusesToWriteInvalidUtf8) {
  Index index;
  index.weight_map = {{"\xff", "a"}};
  EXPECT_THROW(index_json(index), ValueError);
}

}  // namespace nvfp4::safetensors::safetensors_index_test
