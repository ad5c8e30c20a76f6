#include "checkpoint/checkpoints.h"

/// Tests of the text of the written config.json.
namespace nvfp4::config_text_test {

TEST(ConfigText, NumbersThatOnlyPythonHasStay) {
  const TempDir dir;
  write_tiny_llama(dir / "a");
  write_text(dir / "a" / "config.json",
             R"({"text_config": {"quantization_config": {}, "x": NaN}, "torch_dtype":"bfloat16",)"
             R"("time_step_limit":[0.0,Infinity]})");
  quantize_checkpoint(dir / "a", dir / "b");
  EXPECT_TRUE(read_text(dir / "b" / "config.json")
                  .starts_with(R"({"text_config": { "x": NaN}, "torch_dtype":"bfloat16",)"
                               R"("time_step_limit":[0.0,Infinity],)"));
  convert(dir / "b", dir / "c", "fp16");
  EXPECT_TRUE(read_text(dir / "c" / "config.json")
                  .starts_with(R"({"text_config": { "x": NaN}, "torch_dtype":"float16",)"
                               R"("time_step_limit":[0.0,Infinity])"));
}

TEST(ConfigText, OnlyDeclarationsOfMlxGo) {
  const TempDir dir;
  write_tiny_llama(dir / "a");
  const std::string of_mlx = R"("quantization": {"group_size": 16, "bits": 4, "mode": "nvfp4"}, )",
                    other = R"("quantization": {"bits": 4}, )";
  const std::pair<std::string, std::string> rows[] = {
      {other, of_mlx}, {of_mlx, other}, {other, other}};
  for (const auto& [outer, inner] : rows) {
    SCOPED_TRACE(outer + inner);
    const std::string tail = R"("torch_dtype":"bfloat16"})";
    write_text(dir / "a" / "config.json",
               "{" + outer + R"("text_config": {)" + inner + R"("x": 1}, )" + tail);
    fs::remove_all(dir / "b");
    quantize_checkpoint(dir / "a", dir / "b");
    const std::string out = read_text(dir / "b" / "config.json");
    EXPECT_EQ(out.find("group_size\": 16, \"bits\": 4, \"mode"), out.npos) << out;
    EXPECT_EQ(out.find(R"({"quantization": {"bits": 4}, "text)") != out.npos, outer == other)
        << out;
    EXPECT_EQ(out.find(R"({"quantization": {"bits": 4}, "x")") != out.npos, inner == other) << out;
  }
}

TEST(ConfigText, NoQuantizationIsLeftOverPlainWeights) {
  const TempDir dir;
  write_tiny_llama(dir / "a");
  quantize_checkpoint(dir / "a", dir / "b");
  std::string text = read_text(dir / "b" / "config.json");
  const std::string key = "\"quantization_config\"";
  text.insert(text.find(key), R"("quantization\u005fconfig": {"quant_method": "modelopt"}, )" +
                                  key + R"(: {"quant_method": "modelopt"}, )");
  write_text(dir / "b" / "config.json", text);
  for (const std::string to : {"bf16", "compressed-tensors"}) {
    convert(dir / "b", dir / to, to);
    const std::string out = read_text(dir / to / "config.json");
    EXPECT_THAT(out, Not(HasSubstr("u005f")));
    const std::size_t first = out.find(key);
    EXPECT_EQ(first == out.npos, to == "bf16") << out;
    EXPECT_EQ(out.rfind(key), first) << "once, " << out;
  }
}

TEST(ConfigText, AnEmptyFileIsNoAbsentOne) {
  const TempDir dir;
  write_tiny_llama(dir / "a");
  quantize_checkpoint(dir / "a", dir / "b");
  for (const char* text : {"", " \n", "{"}) {
    SCOPED_TRACE(text);
    for (const char* folder : {"a", "b"}) write_text(dir / folder / "config.json", text);
    const std::string a = (dir / "a" / "config.json").string() + ": ",
                      b = (dir / "b" / "config.json").string() + ": ";
    expect_error<FormatError>([&] { quantize_checkpoint(dir / "a", dir / "out"); },
                              {a, "syntax error"});
    for (const std::string to : {"bf16", "modelopt"})
      expect_error<FormatError>([&] { convert(dir / "b", dir / "out", to); }, {b, "syntax error"});
    expect_error<FormatError>([&] { repair_checkpoint(repair_options(dir / "b", dir / "out")); },
                              {b, "syntax error"});
    EXPECT_FALSE(fs::exists(dir / "out"));
  }
}

}  // namespace nvfp4::config_text_test
