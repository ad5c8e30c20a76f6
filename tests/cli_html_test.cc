#ifdef NVFP4_CLI_PATH

#include <cmath>
#include <filesystem>
#include <vector>

#include "checkpoint/statistics_file.h"
#include "run_cli.h"

namespace nvfp4::cli_html_test {

TEST_F(Cli, ComparePageChangesNoOtherOutput) {
  make_sample();
  ASSERT_EQ(run({"quantize", "m", "out", "-q"}).status, 0);
  const Result r = run({"compare", "m", "out", "--html", "page.html", "-q"});
  EXPECT_EQ(r.status, 0) << r.err;
  EXPECT_EQ(r.out, run({"compare", "m", "out", "-q"}).out);
  run({"compare", "m", "out", "--html", "again.html", "-q"}, {"NVFP4_THREADS=1"});
  EXPECT_EQ(read_text(dir_ / "page.html"), read_text(dir_ / "again.html"));
}

TEST_F(Cli, ComparePageSaysWhatCalibrationDecided) {
  make_sample();
  ASSERT_EQ(run({"quantize", "m", "out", "-q"}).status, 0);
  write_text(dir_ / "run.json", R"({"tensors": [
    {"name": "embed", "action": "kept"},
    {"name": "model.layers.1.mlp.<b>.weight", "rows": {"mse": 1, "weighted": 2, "gptq": 3,
     "descent": 94}, "output_error": {"mse": 8, "kept": 2}}]})");
  const Result r = run({"compare", "m", "out", "--html", "page.html", "--run", "run.json", "-q"});
  EXPECT_EQ(r.status, 0) << r.err;
  const std::string page = read_text(dir_ / "page.html");
  for (const char* part : {"Calibration", "<td>25.000 %</td>", "<td>94.000 %</td>", "1 · ",
                           "mlp.<wbr>&lt;b&gt;", "Output error by layer"})
    EXPECT_TRUE(has(page, part)) << part;
  EXPECT_FALSE(has(page, "<b>.weight"));
  EXPECT_NE(run({"compare", "m", "out", "--run", "run.json", "-q"}).status, 0);
  write_text(dir_ / "run.json", R"({"tensors": [{"name": "a", "rows": {"mse": "many"}}]})");
  const Result bad = run({"compare", "m", "out", "--html", "page.html", "--run", "run.json", "-q"});
  EXPECT_NE(bad.status, 0);
  EXPECT_TRUE(has(bad.err, "rows.mse")) << bad.err;
}

/// gptq has larger errors of weights than max, and smaller ones of outputs.
TEST_F(Cli, OutputErrorsComeFirst) {
  write_tiny_llama(dir_ / "m");
  write_llama_grams(dir_ / "s");
  const Result r = run({"quantize", "m", "b", "--method", "gptq", "--statistics", "s"});
  ASSERT_EQ(r.status, 0) << r.err;
  EXPECT_LT(r.out.find("outputs  error over the calibration text "), r.out.find(", weight error "));
  EXPECT_TRUE(has(r.out, "what counts is the error of outputs")) << r.out;
  ASSERT_EQ(run({"quantize", "m", "c", "--method", "max", "-q"}).status, 0);
  const Words words{"compare", "m", "b", "--against", "c", "--html", "p.html", "-q"};
  ASSERT_EQ(run(words).status, 0);
  EXPECT_FALSE(has(read_text(dir_ / "p.html"), "utput error"));
  Words more = words;
  more.insert(more.end(), {"--statistics", "s"});
  ASSERT_EQ(run(more).status, 0);
  const std::string page = read_text(dir_ / "p.html");
  EXPECT_LT(page.find("<span>output error of b, calibration text"), page.find("error of weights"));
  EXPECT_LT(page.find("<caption>Output error ‖X"), page.find("<caption>Weight error of all"));
  const std::size_t outputs = page.find("<caption>Output error over the calibration text"),
                    weights = page.find("<caption>Weight error of tensors that b or c");
  ASSERT_LT(outputs, weights);
  ASSERT_NE(weights, page.npos);
  EXPECT_TRUE(has(page.substr(outputs, weights - outputs), "<td>14</td><td>0</td><td>0</td>"));
}

TEST_F(Cli, ComparePageShowsHostileNamesAsText) {
  const std::string name = "m.1.<script>&\"'\x1b[31m.weight";
  const std::string other = "</ul><b onclick='x'>";
  write_shard(dir_ / "a.safetensors", {stored_f32(name, {1, 16}, std::vector<float>(16, 1.0f)),
                                       stored_f32(other, {1}, {1.0f})});
  write_shard(dir_ / "b.safetensors", {stored_f32(name, {1, 16}, std::vector<float>(16, 2.0f))});
  ASSERT_EQ(run({"compare", "a.safetensors", "b.safetensors", "--html", "p.html", "-q"}).status, 0);
  const std::string page = read_text(dir_ / "p.html");
  EXPECT_TRUE(has(page, "m.<wbr>1.<wbr>&lt;script&gt;&amp;&quot;&#39;\\x1b[31m.<wbr>weight"))
      << page;
  EXPECT_TRUE(has(page, "&lt;/<wbr>ul&gt;&lt;b onclick=&#39;x&#39;&gt;")) << page;
  EXPECT_FALSE(has(page, "<script") || has(page, "\x1b") || has(page, "<b onclick"));
}

TEST_F(Cli, ComparePageSaysNaNAndIdentical) {
  std::vector<float> x(16, 1.0f);
  write_shard(dir_ / "a.safetensors", {stored_f32("m.0.w", {1, 16}, x)});
  ASSERT_EQ(run({"compare", "a.safetensors", "a.safetensors", "--html", "p.html", "-q"}).status, 0);
  EXPECT_TRUE(has(read_text(dir_ / "p.html"), "hold the same values"));
  x[3] = std::nanf("");
  write_shard(dir_ / "b.safetensors", {stored_f32("m.0.w", {1, 16}, x)});
  ASSERT_EQ(run({"compare", "a.safetensors", "b.safetensors", "--html", "p.html", "-q"}).status, 0);
  EXPECT_TRUE(has(read_text(dir_ / "p.html"), "<span class='bad'>nan</span>"));
}

TEST_F(Cli, ComparePageCountsBlockScalesThatAreBroken) {
  std::vector<std::uint8_t> scales{0x38, 0xB8, 0x7F, 0x40};
  write_shard(dir_ / "b.safetensors",
              modelopt_layer("m.0.q", 2, 32, std::vector<std::uint8_t>(32, 0x11), scales, 0.25f));
  write_shard(dir_ / "a.safetensors",
              {stored_f32("m.0.q.weight", {2, 32}, std::vector<float>(64, 1.0f))});
  ASSERT_EQ(run({"compare", "a.safetensors", "b.safetensors", "--html", "p.html", "-q"}).status, 0);
  EXPECT_TRUE(has(read_text(dir_ / "p.html"), "2 block scales are negative or NaN"));
}

TEST_F(Cli, ComparePageIsNeverWrittenIntoACheckpoint) {
  make_sample();
  ASSERT_EQ(run({"quantize", "m", "out", "-q"}).status, 0);
  expect_one_line_error(run({"compare", "m", "out", "--html", "m/p.html"}), 2,
                        {"--html", "m/p.html"});
  expect_one_line_error(run({"compare", "m", "out", "--html", "out/p.html"}), 2, {"--html"});
  expect_one_line_error(run({"compare", "m", "out", "--html", "no/p.html"}), 1, {"--html", "no"});
  EXPECT_FALSE(std::filesystem::exists(dir_ / "out" / "p.html"));
}

}  // namespace nvfp4::cli_html_test

#endif  // NVFP4_CLI_PATH
