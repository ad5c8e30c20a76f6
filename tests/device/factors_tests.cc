// Who factors the Gram matrices of a checkpoint on a device, and what the report says of it.
#include <gmock/gmock.h>

#include "checkpoint/checkpoints.h"
#include "checkpoint/statistics_file.h"
#include "device/cpu_as_device.h"
#include "nvfp4/error.h"
#include "testing.h"

namespace nvfp4 {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class Factors : public testing::Test {
 protected:
  Factors() {
    write_tiny_llama(dir_ / "in");
    write_llama_grams(dir_ / "stats.safetensors");
  }
  void TearDown() override {
    set_solver(FakeSolver::none);
    unsetenv("NVFP4_FACTORS");
  }

  QuantizeCheckpointOptions options_for(Device device) const {
    auto options = quantize_options(
        dir_ / "in", dir_ / "out",
        {"--method", "gptq", "--statistics", dir_ / "stats.safetensors", "--overwrite"});
    options.device = device;
    options.wait_for_device = true;
    return options;
  }
  QuantizeReport quantize(FakeSolver solver, const char* wanted,
                          Device device = Device::cuda()) const {
    set_solver(solver);
    setenv("NVFP4_FACTORS", wanted, 1);
    return quantize_checkpoint(options_for(device));
  }
  static std::string by(const QuantizeReport& report) {
    std::string all;
    for (const TensorReport& t : report.tensors)
      if (all.find(t.factors) == std::string::npos) all += t.factors;
    return all;
  }
  static double output_error(const QuantizeReport& report) {
    double sum = 0;
    for (const TensorReport& t : report.tensors) sum += t.output.kept;
    return sum;
  }

  const TempDir dir_;
};

TEST_F(Factors, LibraryKeepsEigensOutputError) {
  const QuantizeReport cpu = quantize(FakeSolver::works, "cusolver", Device{});
  EXPECT_EQ(solved(), 0);
  EXPECT_EQ(by(cpu), "Eigen");
  const QuantizeReport device = quantize(FakeSolver::works, "cusolver");
  EXPECT_GT(solved(), 3);
  EXPECT_EQ(by(device), "cuSOLVER");
  EXPECT_NEAR(output_error(device), output_error(cpu), 1e-3 * output_error(cpu));
  EXPECT_THAT(to_json(device), HasSubstr("\"factors\": \"cuSOLVER\""));
}

TEST_F(Factors, OfALibraryAreTakenWhereOneIs) {
  EXPECT_EQ(by(quantize(FakeSolver::works, "")), "cuSOLVER");
  EXPECT_GT(solved(), 3);
}

TEST_F(Factors, OfEigenHaveTheBytesOfTheCpu) {
  const QuantizeReport cpu = quantize(FakeSolver::works, "", Device{});
  const auto wanted = files_of(dir_ / "out");
  for (const auto& [solver, factors] : {std::pair(FakeSolver::works, "eigen"),
                                        {FakeSolver::none, ""},
                                        {FakeSolver::is_missing, ""}}) {
    const QuantizeReport device = quantize(solver, factors);
    EXPECT_EQ(solved(), 0);
    EXPECT_EQ(by(device), "Eigen");
    EXPECT_TRUE(files_of(dir_ / "out") == wanted);
  }
}

TEST_F(Factors, OfAnotherLibraryDoNotResumeARun) {
  set_solver(FakeSolver::works);
  auto options = options_for(Device::cuda());
  options.overwrite = false;
  options.progress = [&](const Progress&) {
    if (std::filesystem::exists(dir_ / "out" / "model-00001-of-00003.safetensors"))
      throw IoError("stop");
  };
  EXPECT_THROW(quantize_checkpoint(options), IoError);
  options.progress = {};
  options.resume = true;
  set_solver(FakeSolver::none);
  expect_error<ValueError>([&] { quantize_checkpoint(options); },
                           {"factors was \"a stand-in\", now absent"});
  set_solver(FakeSolver::works);
  const QuantizeReport resumed = quantize_checkpoint(options);
  EXPECT_GT(resumed.shards_reused, 0);
  EXPECT_EQ(by(resumed), "cuSOLVER");
}

TEST_F(Factors, OfALibraryThatFailsAreNotReplaced) {
  expect_error<UnsupportedError>([&] { quantize(FakeSolver::is_missing, "cusolver"); },
                                 {"it is not there"});
  expect_error<DeviceError>([&] { quantize(FakeSolver::refuses, "cusolver"); },
                            {"it does not want to", "NVFP4_FACTORS=eigen"});
  expect_error<UnsupportedError>([&] { quantize(FakeSolver::none, "cusolver"); },
                                 {"NVFP4_FACTORS = cusolver", "no such library"});
  expect_error<ValueError>([&] { quantize(FakeSolver::works, "lapack"); },
                           {"NVFP4_FACTORS = \"lapack\"", "must be eigen or cusolver"});
}

}  // namespace
}  // namespace nvfp4
