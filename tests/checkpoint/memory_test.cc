#include "platform/memory.h"

#include "checkpoint/checkpoints.h"
#include "checkpoint/child_process.h"

namespace nvfp4::memory_test {

/// 24 weights of 32 MiB of zeros, 1.5 times the bound, quantized within it. FP8 has scales of 1.
void expect_bounded_memory(safetensors::DType dtype, std::int64_t cols, std::string_view config) {
  const TempDir dir;
  fs::create_directories(dir / "in");
  const bool fp8 = dtype == safetensors::DType::f8_e4m3;
  const std::int64_t rows = 4096;
  std::vector<safetensors::TensorSpec> specs;
  for (int i = 0; i < 24; ++i) {
    const std::string name = "l." + std::to_string(i);
    const bool kept = !fp8 && i % 4 == 0;
    specs.push_back({name + (kept ? ".embed.weight" : ".o_proj.weight"), dtype, {rows, cols}});
  }
  if (fp8)
    for (int i = 0; i < 24; ++i)
      specs.push_back({specs[static_cast<std::size_t>(i)].name + "_scale_inv",
                       safetensors::DType::f32,
                       {rows / 128, cols / 128}});
  const std::vector<std::byte> zeros(32 << 20);
  const std::vector<float> ones(static_cast<std::size_t>(rows / 128 * (cols / 128)), 1.0f);
  safetensors::Writer writer(dir / "in" / "model.safetensors", specs);
  for (std::size_t i = 0; i < specs.size(); ++i)
    writer.write(i, 0, i < 24 ? std::span(zeros) : std::as_bytes(std::span(ones)));
  writer.commit();
  std::ofstream(dir / "in" / "config.json") << config;
  const std::uint64_t limit = 3 * zeros.size() + (512u << 20);
  const int status =
      run_child("Child.DISABLED_Quantize", {{"CHILD_INPUT", (dir / "in").string()},
                                            {"CHILD_OUTPUT", (dir / "out").string()},
                                            {"CHILD_MEMORY_LIMIT", std::to_string(limit)},
                                            {"CHILD_MAX", "1"}});
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  EXPECT_TRUE(fs::exists(dir / "out" / "config.json"));
}

TEST(Memory, PeakIsBelowThreeLargestTensors) {
#ifdef NVFP4_TEST_EMULATOR
  GTEST_SKIP() << "an emulator has memory of its own";
#endif
  expect_bounded_memory(safetensors::DType::bf16, 4096, "{}");
}

TEST(Memory, PeakIsNoHigherForFp8) {
#ifdef NVFP4_TEST_EMULATOR
  GTEST_SKIP() << "an emulator has memory of its own";
#endif
  expect_bounded_memory(
      safetensors::DType::f8_e4m3, 8192,
      R"({"quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]}})");
}

/// In a child: quantizes, and writes its peak to a file.
TEST(Child, DISABLED_QuantizeAndSayThePeak) {
  std::ofstream(child_variable("CHILD_PEAK"))
      << quantize_checkpoint(child_variable("CHILD_INPUT"), child_variable("CHILD_OUTPUT"),
                             {"--method", "max"})
             .peak_memory_bytes;
}

/// In a child: looks into a checkpoint, and writes its peak to a file.
TEST(Child, DISABLED_InspectAndSayThePeak) {
  InspectOptions options;
  options.path = child_variable("CHILD_INPUT");
  const InspectReport report = inspect_checkpoint(options);
  EXPECT_EQ(report.tensors[0].codes.size(), 16u);
  std::ofstream(child_variable("CHILD_PEAK")) << platform::peak_memory();
}

/// In a child: holds a checkpoint against its source, and writes its peak to a file.
TEST(Child, DISABLED_VerifyAndSayThePeak) {
  EXPECT_FALSE(verify_checkpoint(
                   verify_options(child_variable("CHILD_OUTPUT"), child_variable("CHILD_INPUT")))
                   .broken());
  std::ofstream(child_variable("CHILD_PEAK")) << platform::peak_memory();
}

/// So many weights of 512 bytes. Rows have magnitudes of their own, so that verify finds nothing.
void write_many(const TempDir& dir, std::int64_t weights) {
  fs::create_directories(dir / "in");
  std::vector<safetensors::TensorSpec> specs;
  for (std::int64_t i = 0; i < weights; ++i)
    specs.push_back(
        {fmt::format("model.layers.{}.mlp.experts.{}.down_proj.weight", i / 128, i % 128),
         safetensors::DType::bf16,
         {16, 16}});
  std::vector<std::uint16_t> weight;
  for (int i = 0; i < 256; ++i)
    weight.push_back(static_cast<std::uint16_t>(0x3F80 - 0x80 * (i / 16) + i % 16));
  safetensors::Writer writer(dir / "in" / "model.safetensors", specs);
  for (std::size_t i = 0; i < specs.size(); ++i)
    writer.write(i, 0, std::as_bytes(std::span(weight)));
  writer.commit();
  std::ofstream(dir / "in" / "config.json") << "{}";
}

std::uint64_t peak_in_child(const TempDir& dir, const std::string& test, const char* input) {
  const int status = run_child("Child.DISABLED_" + test, {{"CHILD_INPUT", (dir / input).string()},
                                                          {"CHILD_OUTPUT", (dir / "out").string()},
                                                          {"NVFP4_THREADS", "1"},
                                                          {"MALLOC_ARENA_MAX", "1"},
                                                          {"CHILD_PEAK", (dir / "peak").string()}});
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  std::uint64_t peak = 0;
  std::ifstream(dir / "peak") >> peak;
  EXPECT_GT(peak, 0u);
  return peak;
}

// Models of many experts have tensors by the ten thousand.
TEST(MemorySlow, PeakGrowsByLittleForEachTensor) {
#if defined(NVFP4_TEST_EMULATOR) || defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "an emulator and sanitizers have memory of their own";
#endif
  constexpr std::int64_t kFew = 2'000, kMany = 32'000;
  std::int64_t quantize[2] = {}, inspect[2] = {}, verify[2] = {};
  for (const bool many : {false, true}) {
    const TempDir dir;
    write_many(dir, many ? kMany : kFew);
    const auto peak = [&](const char* test, const char* input) {
      return static_cast<std::int64_t>(peak_in_child(dir, test, input));
    };
    quantize[many] = peak("QuantizeAndSayThePeak", "in");
    inspect[many] = peak("InspectAndSayThePeak", "out");
    verify[many] = peak("VerifyAndSayThePeak", "in");
  }
  EXPECT_LT((quantize[1] - quantize[0]) / (kMany - kFew), 1700);
  EXPECT_LT((inspect[1] - inspect[0]) / (kMany - kFew), 2100);
  EXPECT_LT((verify[1] - verify[0]) / (kMany - kFew), 3300);
}

// The parent process may be much larger, such as a Python process with a model.
TEST(Memory, PeakIsThatOfThisProgram) {
#ifdef NVFP4_TEST_EMULATOR
  GTEST_SKIP() << "an emulator has memory of its own";
#endif
  const TempDir dir;
  write_tiny_llama(dir / "in");
  const std::vector<std::byte> resident(1 << 30, std::byte{1});
  const int status =
      run_child("Child.DISABLED_Quantize", {{"CHILD_INPUT", (dir / "in").string()},
                                            {"CHILD_OUTPUT", (dir / "out").string()},
                                            {"CHILD_MEMORY_LIMIT", std::to_string(resident.size())},
                                            {"CHILD_MAX", "1"}});
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

}  // namespace nvfp4::memory_test
