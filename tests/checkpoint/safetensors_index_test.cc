#include "checkpoint/case_table.h"
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

class SafetensorsIndexTable : public testing::TestWithParam<table::Row> {};

TEST_P(SafetensorsIndexTable, IsRefused) {
  for (const std::string& text : table::Expected(GetParam().column(1)).texts)
    expect_refused(GetParam().column(0), {text});
}

INSTANTIATE_TEST_SUITE_P(Row, SafetensorsIndexTable,
                         testing::ValuesIn(table::rows_of("safetensors_indexes.txt")),
                         table::test_name);

TEST(SafetensorsIndex, RefusesEmptyTextNulAndInvalidUtf8) {
  expect_refused("", {"invalid JSON at byte"});
  expect_refused("{\"weight_map\":{\"\xff\":\"a\"}}", {"invalid JSON at byte"});
  expect_refused(std::string("{\"weight_map\":{}}\0{", 19), {"NUL"});
}

TEST(SafetensorsIndex, TakesFileNamesWithDots) {
  EXPECT_EQ(parse_index(R"({"weight_map":{"a":"..a..b"}})", "i").weight_map.at("a"), "..a..b");
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
