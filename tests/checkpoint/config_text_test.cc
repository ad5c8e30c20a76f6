#include <gtest/gtest.h>

#include <string>

#include "checkpoint/converted.h"

/// What becomes of the text of config.json.
namespace nvfp4 {
namespace {

TEST(ConfigText, NumbersThatOnlyPythonHasStay) {
  const TempDir dir;
  write_tiny_llama(dir / "a");
  write_text(dir / "a" / "config.json",
             R"({"text_config": {"quantization_config": {}, "x": NaN}, "torch_dtype":"bfloat16",)"
             R"("time_step_limit":[0.0,Infinity]})");
  quantize_checkpoint(quantize_options(dir / "a", dir / "b"));
  EXPECT_TRUE(read_text(dir / "b" / "config.json")
                  .starts_with(R"({"text_config": { "x": NaN}, "torch_dtype":"bfloat16",)"
                               R"("time_step_limit":[0.0,Infinity],)"));
  convert(dir / "b", dir / "c", "fp16");
  EXPECT_TRUE(read_text(dir / "c" / "config.json")
                  .starts_with(R"({"text_config": { "x": NaN}, "torch_dtype":"float16",)"
                               R"("time_step_limit":[0.0,Infinity])"));
}

TEST(ConfigText, NoQuantizationIsLeftOverPlainWeights) {
  const TempDir dir;
  write_tiny_llama(dir / "a");
  quantize_checkpoint(quantize_options(dir / "a", dir / "b"));
  std::string text = read_text(dir / "b" / "config.json");
  const std::string key = "\"quantization_config\"";
  text.insert(text.find(key), R"("quantization\u005fconfig": {"quant_method": "modelopt"}, )" +
                                  key + R"(: {"quant_method": "modelopt"}, )");
  write_text(dir / "b" / "config.json", text);
  for (const std::string to : {"bf16", "compressed-tensors"}) {
    convert(dir / "b", dir / to, to);
    const std::string out = read_text(dir / to / "config.json");
    EXPECT_EQ(out.find("u005f"), out.npos) << out;
    const std::size_t first = out.find(key);
    EXPECT_EQ(first == out.npos, to == "bf16") << out;
    EXPECT_EQ(out.rfind(key), first) << "once, " << out;
  }
}

}  // namespace
}  // namespace nvfp4
