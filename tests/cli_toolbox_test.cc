#ifdef NVFP4_CLI_PATH

#include <filesystem>
#include <nlohmann/json.hpp>

#include "checkpoint/models.h"
#include "run_cli.h"

namespace nvfp4::cli_toolbox_test {

TEST_F(Cli, VerifyTellsHealthyFromBroken) {
  make_sample();
  ASSERT_EQ(run({"quantize", "m", "out", "-q"}).status, 0);
  const Result good = run({"verify", "out", "--source", "m", "-q"});
  EXPECT_EQ(good.status, 0) << good.out << good.err;
  EXPECT_TRUE(has(good.out, "OK: 0 errors")) << good.out;
  EXPECT_LE(longest_line(good.out), 80u);

  fs::remove(dir_ / "out" / "hf_quant_config.json");
  fs::copy_file(dir_ / "m" / "config.json", dir_ / "out" / "config.json",
                fs::copy_options::overwrite_existing);
  const Result bad = run({"verify", "out", "-q"});
  EXPECT_EQ(bad.status, 3);
  EXPECT_EQ(bad.err, "") << "a finding is no failure of the command";
  EXPECT_TRUE(has(bad.out, "undeclared")) << bad.out;
  const Result json = run({"verify", "out", "--json", "-q"});
  EXPECT_EQ(json.status, 3);
  EXPECT_EQ(nlohmann::json::parse(json.out).at("findings").at(0).at("code"), "undeclared");
  fs::resize_file(dir_ / "out" / "model.safetensors", 100);
  for (const Words& more : {Words{}, Words{"--source", "m"}}) {
    Words words = {"verify", "out", "--json", "-q"};
    words.insert(words.end(), more.begin(), more.end());
    const Result truncated = run(words);
    EXPECT_EQ(truncated.status, 3) << truncated.err;
    EXPECT_EQ(nlohmann::json::parse(truncated.out).at("broken"), true);
  }
  expect_one_line_error(run({"verify", "nowhere"}), 1, {"nowhere"});
  expect_one_line_error(run({"verify", "out", "--for", "ollama"}), 2, {"--for", "vllm"});
}

TEST_F(Cli, VerifySaysWhatEachLoaderMakesOfIt) {
  make_sample();
  ASSERT_EQ(run({"quantize", "m", "out", "-q"}).status, 0);
  const Result all = run({"verify", "out", "-q"});
  EXPECT_EQ(all.status, 0) << all.out;
  for (const char* row :
       {"\nvllm                reads     vLLM ", "\ntensorrt-llm        unknown   ",
        "\ntransformers        refuses   loader-format: "})
    EXPECT_TRUE(has(all.out, row)) << all.out;
  EXPECT_LE(longest_line(all.out), 80u);
  const Result one = run({"verify", "out", "-q", "--for", "transformers"});
  EXPECT_EQ(one.status, 3) << "it refuses";
  EXPECT_TRUE(has(one.out, "error loader-format")) << one.out;
  EXPECT_EQ(run({"verify", "out", "-q", "--tensor-parallel", "7"}).status, 3);
  expect_one_line_error(run({"verify", "out", "--tensor-parallel", "0"}), 2, {"--tensor-parallel"});
  EXPECT_EQ(run({"verify", "out", "-q", "--for", "vllm"}).status, 0);
  const Result unknown = run({"verify", "out", "-q", "--for", "tensorrt-llm"});
  EXPECT_EQ(unknown.status, 4);
  EXPECT_TRUE(has(unknown.out, "\nunknown: 0 errors")) << unknown.out;
}

TEST_F(Cli, WhatHoldsNothingIsNoSuccess) {
  make_sample();
  const Result plain = run({"verify", "m", "-q"});
  EXPECT_EQ(plain.status, 3);
  EXPECT_TRUE(has(plain.out, "not-quantized") && !has(plain.out, "OK:")) << plain.out;
  write_text(dir_ / "m" / "model.safetensors.index.json",
             R"({"metadata":{"total_size":0},"weight_map":{}})");
  EXPECT_EQ(run({"verify", "m", "-q"}).status, 3);
  for (const Words& words :
       {Words{"inspect", "m"}, Words{"compare", "m", "m"}, Words{"quantize", "m", "out", "-q"}})
    expect_one_line_error(run(words), 1, {"weight_map is empty"});
  write_shard(dir_ / "a.safetensors", {stored_f32("x", {1}, {1.0f})});
  write_shard(dir_ / "b.safetensors", {stored_f32("y", {1}, {1.0f})});
  const Result apart = run({"compare", "a.safetensors", "b.safetensors"});
  EXPECT_EQ(apart.status, 3);
  EXPECT_TRUE(has(apart.out, "nothing was compared")) << apart.out;
}

TEST_F(Cli, CompareSaysTheMedianAndTheWorst) {
  write_shard(dir_ / "a.safetensors", {stored_f32("x", {1}, {1000.0f}),
                                       stored_f32("y", {1}, {1.0f}), stored_f32("z", {1}, {1.0f})});
  write_shard(dir_ / "b.safetensors",
              {stored_f32("x", {1}, {1500.0f}), stored_f32("y", {1}, {1.125f}),
               stored_f32("z", {1}, {1.0625f})});
  const Result r = run({"compare", "a.safetensors", "b.safetensors"});
  EXPECT_EQ(r.status, 0);
  EXPECT_TRUE(has(r.out, "median of the tensors 12.500 %, worst 50.000 %")) << r.out;
}

TEST_F(Cli, ConvertWritesAndReportsAnotherFormat) {
  make_sample();
  ASSERT_EQ(run({"quantize", "m", "a", "-q"}).status, 0);
  const Result r = run({"convert", "a", "b", "--to", "compressed-tensors"});
  EXPECT_EQ(r.status, 0) << r.err;
  EXPECT_TRUE(has(r.out, "moved")) << r.out;
  EXPECT_LE(longest_line(r.out), 80u);
  EXPECT_EQ(run({"convert", "b", "c", "--to", "modelopt", "-q"}).status, 0);
  EXPECT_EQ(read_text(dir_ / "a" / "config.json"), read_text(dir_ / "c" / "config.json"));
  const Result compared = run({"compare", "a", "c", "--json"});
  EXPECT_EQ(nlohmann::json::parse(compared.out).at("different"), 0);
  const Result plain = run({"convert", "c", "plain", "--to", "bf16", "--report", "r.json"});
  EXPECT_EQ(plain.status, 0);
  EXPECT_TRUE(has(plain.out, "x larger") && !has(plain.out, "smaller")) << plain.out;
  EXPECT_TRUE(has(read_text(dir_ / "r.json"), "\"action\": \"dequantized\""));
  expect_one_line_error(run({"convert", "a", "b", "--to", "bf16"}), 1, {"--overwrite"});
  expect_one_line_error(run({"convert", "a", "d", "--to", "gptq"}), 2, {"--to", "modelopt"});
  expect_one_line_error(run({"convert", "a", "a", "--to", "bf16"}), 2, {"OUTPUT"});
  const Result again = run({"quantize", "a", "d"});
  EXPECT_EQ(again.status, 0) << again.err;
  EXPECT_TRUE(has(again.err, "nothing was left to quantize")) << again.err;
}

TEST_F(Cli, ConvertSaysWhichBlocksItRounded) {
  std::vector<TestTensor> tensors;
  for (const char* expert : {"0", "1", "2", "3", "4", "5"}) {
    PackedWeight w = mxfp4_matrix(
        "model.language_model.layers.0.feed_forward.ffn.experts." + std::string(expert) + ".w1", 16,
        64, 115, 115);
    for (int i = 0; i <= expert[0] - '0'; ++i)
      w.tensors[1].bytes[static_cast<std::size_t>(3 * i)] = std::byte{60};
    for (std::byte& codes : w.tensors[0].bytes) codes = std::byte{0x77};
    append(tensors, w);
  }
  write_model(dir_ / "mx", {tensors}, kLlamaConfig);
  const Result r = run({"convert", "mx", "out", "--to", "modelopt", "--report", "r.json"});
  EXPECT_EQ(r.status, 0) << r.err;
  EXPECT_TRUE(has(r.out, "21 blocks, too small")) << r.out;
  EXPECT_TRUE(has(r.out, "6 in ")) << r.out;
  EXPECT_TRUE(has(r.out, "experts.5.w1.weight: 0, 3, 6, 9 …")) << r.out;
  EXPECT_TRUE(has(r.out, "and 2 more tensors; --report")) << r.out;
  EXPECT_LE(longest_line(r.out), 80u) << r.out;
  const auto report = nlohmann::json::parse(read_text(dir_ / "r.json"));
  EXPECT_EQ(report.at("tensors").at(5).at("clamped"), (std::vector<int>{0, 3, 6, 9, 12, 15}));
}

TEST_F(Cli, ConvertDequantizesOnlyIfAllowed) {
  std::vector<TestTensor> tensors;
  append(tensors, mxfp4_matrix("model.layers.0.feed_forward.ffn.experts.0.w1", 16, 64, 115, 115));
  append(tensors, fp8_blocks("model.layers.0.self_attn.q_proj", 256, 128));
  write_model(dir_ / "mixed", {tensors}, kLlamaConfig);
  expect_one_line_error(run({"convert", "mixed", "b", "--to", "modelopt"}), 1,
                        {"q_proj.weight", "FP8, which modelopt cannot hold", "--allow decode"});
  EXPECT_FALSE(fs::exists(dir_ / "b"));
  const Result r = run({"convert", "mixed", "b", "--to", "modelopt", "--allow", "decode"});
  EXPECT_EQ(r.status, 0) << r.err;
  EXPECT_TRUE(has(r.err, "1 FP8 weights become BF16")) << r.err;
  EXPECT_TRUE(has(r.out, "dequantized")) << r.out;
}

TEST_F(Cli, ConvertSaysWhatBecomesQ8) {
  make_sample();
  write_text(dir_ / "r.yaml", "rules:\n- {kind: attention, action: fp8_channel}\n");
  const std::string format = "compressed-tensors";
  ASSERT_EQ(run({"quantize", "m", "a", "--recipe", "r.yaml", "--format", format, "-q"}).status, 0);
  const Result r = run({"convert", "a", "m.gguf", "--rest", "q8_0"});
  EXPECT_EQ(r.status, 0) << r.err;
  EXPECT_TRUE(has(r.out, "q8_0") && has(r.out, "FP8 in the input")) << r.out;
  EXPECT_TRUE(has(r.err, "8 FP8 weights become Q8_0, gguf cannot hold them")) << r.err;
  EXPECT_TRUE(has(r.err, "relative error of the weights that become Q8_0: 0.0")) << r.err;
}

TEST_F(Cli, ConvertsToOneGgufFileAndBack) {
  make_sample();
  fs::create_directory(dir_ / "q");  // the file has the folder's name
  ASSERT_EQ(run({"quantize", "m", "q/m", "-q"}).status, 0);
  fs::remove(dir_ / "q" / "m" / "README.md");  // whose tags it has, too
  const Result r = run({"convert", "q/m", "m.gguf", "--to", "gguf"});
  EXPECT_EQ(r.status, 0) << r.err;
  EXPECT_TRUE(has(r.err, "no tokenizer")) << r.err;
  EXPECT_TRUE(fs::is_regular_file(dir_ / "m.gguf"));
  const Result broken = run({"verify", "m.gguf", "--for", "llama.cpp", "-q"});
  EXPECT_EQ(broken.status, 3) << "without a tokenizer";
  EXPECT_TRUE(has(broken.out, "gguf-tokenizer") && has(broken.out, "1 error")) << broken.out;
  const Result shown = run({"inspect", "m.gguf"});
  EXPECT_TRUE(has(shown.out, "blk.*.attn_q") && has(shown.out, "gguf")) << shown.out;
  EXPECT_EQ(run({"convert", "m.gguf", "b", "--to", "modelopt", "-q"}).status, 0);
  const Result compared = run({"compare", "q/m", "b", "--json"});
  EXPECT_EQ(nlohmann::json::parse(compared.out).at("different"), 0);
  EXPECT_EQ(run({"quantize", "m", "n.gguf", "--format", "gguf", "-q"}).status, 0);
  EXPECT_EQ(read_text(dir_ / "m.gguf"), read_text(dir_ / "n.gguf"));
  expect_one_line_error(run({"convert", "q/m", "m.gguf", "--to", "gguf"}), 1, {"--overwrite"});
  expect_one_line_error(run({"convert", "q/m", "out", "--to", "gguf"}), 1, {"must end in .gguf"});
  expect_one_line_error(run({"repair", "m.gguf", "out"}), 1, {"not repaired"});
}

TEST_F(Cli, RepairSaysWhatItChanged) {
  make_sample();
  ASSERT_EQ(run({"quantize", "m", "a", "-q"}).status, 0);
  fs::remove(dir_ / "a" / "hf_quant_config.json");
  fs::copy_file(dir_ / "m" / "config.json", dir_ / "a" / "config.json",
                fs::copy_options::overwrite_existing);
  const Result dry = run({"repair", "a", "b", "--dry-run"});
  EXPECT_EQ(dry.status, 0) << dry.err;
  EXPECT_FALSE(fs::exists(dir_ / "b"));
  const Result r = run({"repair", "a", "b"});
  EXPECT_EQ(r.status, 0) << r.err;
  EXPECT_TRUE(has(r.out, "undeclared") && has(r.out, "0 errors")) << r.out;
  EXPECT_EQ(run({"verify", "b", "-q"}).status, 0);
  const Result json = run({"repair", "a", "b", "--overwrite", "--json", "-q"});
  EXPECT_EQ(nlohmann::json::parse(json.out).at("changes").at(0).at("code"), "undeclared");
  expect_one_line_error(run({"repair", "m", "c"}), 1, {"no NVFP4 weight"});
}

}  // namespace nvfp4::cli_toolbox_test

#endif  // NVFP4_CLI_PATH
