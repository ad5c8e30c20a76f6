// Whole checkpoints through the GPU. Skipped, with the reason, without one.
#include "checkpoint/checkpoints.h"
#include "checkpoint/cuda_checkpoint.h"

namespace nvfp4::quantize_device_test {

using safetensors::DType;

TEST_F(CudaCheckpoint, GivesTheBytesOfTheCpu) {
  write_tiny_llama(dir_ / "in");
  for (const char* format : {"modelopt", "compressed-tensors"})
    for (const Scheme scheme : {Scheme::w4a4, Scheme::w4a16})
      for (const std::string& quantizer : quantizer_names()) {
        expect_same(
            quantize_options(dir_ / "in", "",
                             {"--format", format, "--scheme", scheme, "--method", quantizer}),
            std::string(format) + " " + quantizer);
      }
}

/// Many chunks, two windows; a chunk of few rows after a larger one; all dtypes; zeros,
/// subnormals and the largest values.
TEST_F(CudaCheckpoint, ManyChunksAndThreadsHaveTheCpusBytes) {
  TestTensor extremes = random_tensor("d.proj.weight", {64, 64}, DType::f32);
  const std::vector<float> special = {0.0f, -0.0f, 1e-45f, -1e-40f, 2687.9f, -2687.9f};
  for (std::size_t i = 0; i < 64 * 16; ++i)
    std::memcpy(extremes.bytes.data() + 4 * i, &special[i % special.size()], 4);
  write_model(
      dir_ / "in",
      {{random_tensor("a.q_proj.weight", {3000, 512}),
        random_tensor("a.k_proj.weight", {1001, 512}, DType::f32), random_tensor("norm", {77})},
       {random_tensor("e.down_proj.weight", {5001, 2064}),
        extremes,
        random_tensor("b.o_proj.weight", {777, 1040}, DType::f16),
        random_tensor("c.up_proj.weight", {1, 16}),
        {{"c.down_proj.weight", DType::bf16, {48, 32}}, std::vector<std::byte>(48 * 32 * 2)},
        random_tensor("embed.weight", {2000, 512})}},
      "{}");
  for (const int n : {1, 3, 8}) {
    set_threads(n);
    for (const std::string& quantizer : quantizer_names()) {
      auto options = quantize_options(dir_ / "in", "", {"--method", quantizer});
      options.include = {"*_proj"};      // of any number of rows
      options.ignore = {"c.down_proj"};  // its norm is 0
      expect_same(options, quantizer + ", threads " + std::to_string(n));
    }
  }
}

/// Some chunks by the CPU, the others by the device, and who does which is a matter of time.
TEST_F(CudaCheckpoint, SharedWorkHasTheCpusBytes) {
  write_model(dir_ / "in",
              {{random_tensor("a.o_proj.weight", {9000, 2048}),
                random_tensor("b.down_proj.weight", {3001, 2064}, DType::f32)}},
              "{}");
  auto options = quantize_options(dir_ / "in", dir_ / "cpu", {"--method", "max"});
  options.include = {"*_proj"};  // of any number of rows
  QuantizeReport cpu = quantize_checkpoint(options);
  options.device = Device::cuda();
  options.overwrite = true;
  for (int i = 0; i < 8; ++i) {
    set_threads(1 + i);
    options.output = dir_ / "cuda";
    const QuantizeReport cuda = quantize_checkpoint(options);
    cpu.threads = cuda.threads;
    EXPECT_EQ(text_of(cuda), text_of(cpu)) << i;
    EXPECT_EQ(files_of(dir_ / "cpu"), files_of(dir_ / "cuda")) << i;
  }
}

TEST_F(CudaCheckpoint, GivesTheBytesOfTheCpuForZeros) {
  write_model(dir_ / "in",
              {{{{"a.proj.weight", DType::bf16, {48, 32}}, std::vector<std::byte>(48 * 32 * 2)}}},
              "{}");
  for (const std::string& quantizer : quantizer_names()) {
    auto options =
        quantize_options(dir_ / "in", dir_ / ("cpu-" + quantizer), {"--method", quantizer});
    const QuantizeReport cpu = quantize_checkpoint(options);
    options.output = dir_ / ("cuda-" + quantizer);
    options.device = Device::cuda();
    options.wait_for_device = true;
    EXPECT_EQ(text_of(quantize_checkpoint(options)), text_of(cpu)) << quantizer;
    EXPECT_EQ(files_of(dir_ / ("cpu-" + quantizer)), files_of(dir_ / ("cuda-" + quantizer)));
  }
}

TEST_F(CudaCheckpoint, StackedExpertsHaveTheCpusBytes) {
  for (const char* config : {R"({"model_type": "gpt_oss", "hidden_size": 64})",
                             R"({"model_type": "llama4", "text_config": {"hidden_size": 64}})"}) {
    write_model(dir_ / "in",
                {{random_tensor("l.mlp.experts.gate_up_proj", {3, 64, 96}),
                  random_tensor("l.mlp.experts.down_proj", {3, 48, 64}, DType::f32),
                  random_tensor("l.mlp.router.weight", {3, 64})}},
                config);
    expect_same(quantize_options(dir_ / "in", ""), config);
  }
}

/// The CPU moves what is NVFP4 already, the device encodes the rest.
TEST_F(CudaCheckpoint, HalfQuantizedModelsHaveTheCpusBytes) {
  write_tiny_llama(dir_ / "plain");
  quantize_checkpoint(dir_ / "plain", dir_ / "half", {"--ignore", "*.self_attn.q_proj", "*.mlp.*"});
  expect_same(quantize_options(dir_ / "half", ""), "half");
}

/// The first non-finite element, whichever thread met one first.
TEST_F(CudaCheckpoint, NonFiniteWeightsHaveTheCpusMessage) {
  TestTensor bad = random_tensor("a.proj.weight", {704, 512}, DType::f32);
  for (const float value :
       {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::quiet_NaN()}) {
    for (const std::size_t i : {std::size_t{123} * 512 + 45, std::size_t{703} * 512 + 511})
      std::memcpy(bad.bytes.data() + 4 * i, &value, 4);
    fs::remove_all(dir_ / "in");
    write_model(dir_ / "in", {{random_tensor("a.o_proj.weight", {64, 64}), bad}}, "{}");
    auto options = quantize_options(dir_ / "in", dir_ / "out", {"--overwrite"});
    std::string messages[2];
    for (const Device device : {Device{}, Device::cuda()}) {
      options.device = device;
      try {
        quantize_checkpoint(options);
      } catch (const ValueError& e) {
        messages[device == Device::cuda()] = e.what();
      }
    }
    EXPECT_THAT(messages[0], HasSubstr("a.proj.weight[123, 45] = "));
    EXPECT_EQ(messages[0], messages[1]);
  }
}

/// The device is no part of the options that a resumed run must share.
TEST_F(CudaCheckpoint, GoesOnWithARunOfTheCpu) {
  write_tiny_llama(dir_ / "in");
  quantize_checkpoint(dir_ / "in", dir_ / "whole");
  auto options = quantize_options(dir_ / "in", dir_ / "out");
  options.progress = [](const Progress& p) {
    if (p.tensors_done == 15) throw IoError("stop");
  };
  EXPECT_THROW(quantize_checkpoint(options), IoError);
  EXPECT_FALSE(fs::exists(dir_ / "out" / "config.json"));
  options.progress = {};
  options.resume = true;
  options.device = Device::cuda();
  options.wait_for_device = true;
  quantize_checkpoint(options);
  EXPECT_EQ(files_of(dir_ / "out"), files_of(dir_ / "whole"));
}

/// It fails while the next chunks are on the device; the next run is as if nothing had been.
TEST_F(CudaCheckpoint, AFailureLeavesNothingUnderWay) {
  write_model(
      dir_ / "in",
      {{random_tensor("a.proj.weight", {16, 16}), random_tensor("b.proj.weight", {9000, 512})}},
      "{}");
  for (int i = 0; i < 5; ++i) {
    auto options = quantize_options(dir_ / "in", dir_ / "out", {"--overwrite"});
    options.device = Device::cuda();
    options.wait_for_device = true;
    options.progress = [](const Progress&) { throw IoError("stop"); };
    EXPECT_THROW(quantize_checkpoint(options), IoError);
  }
  expect_same(quantize_options(dir_ / "in", ""), "after failures");
}

/// FP8 weights are encoded anew, on the device; a repair encodes what only its source can tell.
TEST_F(CudaCheckpoint, ConversionsAndRepairsHaveTheCpusBytes) {
  write_tiny_llama(dir_ / "plain");
  quantize_checkpoint(dir_ / "plain", dir_ / "q");
  LoadedFolder broken(dir_ / "q");
  broken.set_scalar("model.layers.0.mlp.down_proj.weight_scale_2", 0);
  broken.write(dir_ / "broken");
  std::vector<TestTensor> fp8 = {random_tensor("norm.weight", {64})};
  append(fp8, fp8_blocks("a.q_proj", 256, 384));
  append(fp8, fp8_blocks("a.o_proj", 1024, 384));
  write_model(dir_ / "fp8", {fp8}, "{}");
  for (const Device device : {Device{}, Device::cuda()}) {
    const std::string name = device == Device{} ? "cpu" : "cuda";
    auto convert = convert_options(dir_ / "fp8", dir_ / (name + "-converted"), "modelopt");
    convert.device = device;
    convert.wait_for_device = true;
    EXPECT_EQ(convert_checkpoint(convert).device, device);
    auto repair = repair_options(dir_ / "broken", dir_ / (name + "-repaired"), dir_ / "plain");
    repair.device = device;
    repair.wait_for_device = true;
    EXPECT_EQ(repair_checkpoint(repair).written.device, device);
  }
  for (const char* what : {"-converted", "-repaired"})
    EXPECT_EQ(files_of(dir_ / (std::string("cpu") + what)),
              files_of(dir_ / (std::string("cuda") + what)));
}

TEST(QuantizeCheckpointDevice, UnusableDeviceIsRefusedWithoutChanges) {
  const TempDir dir;
  write_tiny_llama(dir / "in");
  auto options = quantize_options(dir / "in", dir / "out");
  options.device = Device::cuda(999);
  const auto expect_refused = [&] {
    for (const bool dry_run : {false, true}) {
      options.dry_run = dry_run;
      expect_error<UnsupportedError>([&] { quantize_checkpoint(options); },
                                     {"device = cuda:999: "});
    }
  };
  expect_refused();
  EXPECT_FALSE(fs::exists(dir / "out"));
  quantize_checkpoint(dir / "in", dir / "out");
  const auto before = files_of(dir / "out");
  options.overwrite = true;
  expect_refused();
  EXPECT_EQ(files_of(dir / "out"), before);
}

TEST(QuantizeCheckpointDevice, ConvertAndRepairHaveTheSameMessage) {
  const TempDir dir;
  write_tiny_llama(dir / "in");
  quantize_checkpoint(dir / "in", dir / "q");
  auto convert = convert_options(dir / "q", dir / "out", "bf16");
  convert.device = Device::cuda(999);
  expect_error<UnsupportedError>([&] { convert_checkpoint(convert); }, {"device = cuda:999: "});
  auto repair = repair_options(dir / "q", dir / "out");
  repair.device = Device::cuda(999);
  expect_error<UnsupportedError>([&] { repair_checkpoint(repair); }, {"device = cuda:999: "});
  repair.device = {};
  repair.backend = "abacus";
  expect_error<ValueError>([&] { repair_checkpoint(repair); }, {"abacus"});
  EXPECT_FALSE(fs::exists(dir / "out"));
}

}  // namespace nvfp4::quantize_device_test
