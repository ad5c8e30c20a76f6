// Who factors the Gram matrices of a checkpoint on a device, and what the report says of it.
#include <gmock/gmock.h>

#include "checkpoint/expect_error.h"
#include "checkpoint/loaded_folder.h"
#include "checkpoint/statistics_file.h"
#include "device/cpu_as_device.h"
#include "nvfp4/error.h"

namespace nvfp4 {
namespace {

using testing::HasSubstr;

class Factors : public testing::Test {
 protected:
  Factors() {
    write_tiny_llama(dir_ / "in");
    write_llama_grams(dir_ / "stats.safetensors");
    options_ = quantize_options(dir_ / "in", dir_ / "out");
    options_.method = "gptq";
    options_.statistics = dir_ / "stats.safetensors";
    options_.wait_for_device = true;
    options_.overwrite = true;
  }
  void TearDown() override {
    set_solver(FakeSolver::none);
    unsetenv("NVFP4_FACTORS");
  }

  QuantizeReport quantize(FakeSolver solver, const char* wanted, Device device = Device::cuda()) {
    set_solver(solver);
    setenv("NVFP4_FACTORS", wanted, 1);
    options_.device = device;
    return quantize_checkpoint(options_);
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
  QuantizeCheckpointOptions options_;
};

TEST_F(Factors, OfALibraryLeaveTheOutputErrorOfEigens) {
  const QuantizeReport cpu = quantize(FakeSolver::works, "cusolver", Device{});
  EXPECT_EQ(solved(), 0);
  EXPECT_EQ(by(cpu), "Eigen");
  const QuantizeReport device = quantize(FakeSolver::works, "cusolver");
  EXPECT_GT(solved(), 3);
  EXPECT_EQ(by(device), "cuSOLVER");
  EXPECT_NEAR(output_error(device), output_error(cpu), 1e-3 * output_error(cpu));
  EXPECT_THAT(to_json(device), HasSubstr("\"factors\": \"cuSOLVER\""));
}

TEST_F(Factors, OfEigenAreTakenUnlessTheEnvironmentSaysOtherwise) {
  const QuantizeReport cpu = quantize(FakeSolver::works, "", Device{});
  const auto wanted = files_of(dir_ / "out");
  for (const char* const by_eigen : {"", "eigen"}) {
    const QuantizeReport device = quantize(FakeSolver::works, by_eigen);
    EXPECT_EQ(solved(), 0);
    EXPECT_EQ(by(device), "Eigen");
    EXPECT_TRUE(files_of(dir_ / "out") == wanted);
  }
}

/// Ranks and resumed runs go by the same journal.
TEST_F(Factors, OfBothAreNotInOneOutput) {
  options_.overwrite = false;
  options_.ranks = 2;
  quantize(FakeSolver::works, "cusolver");
  options_.rank = 1;
  expect_error<ValueError>([&] { quantize(FakeSolver::works, ""); },
                           {"differ", "factors was \"cusolver\", now absent"});
  EXPECT_TRUE(quantize(FakeSolver::works, "cusolver").complete);
}

TEST_F(Factors, OfALibraryThatFailsAreNotReplaced) {
  expect_error<UnsupportedError>([&] { quantize(FakeSolver::is_missing, "cusolver"); },
                                 {"it is not there"});
  expect_error<DeviceError>([&] { quantize(FakeSolver::refuses, "cusolver"); },
                            {"it does not want to"});
  expect_error<UnsupportedError>([&] { quantize(FakeSolver::none, "cusolver"); },
                                 {"NVFP4_FACTORS = cusolver", "no such library"});
  expect_error<ValueError>([&] { quantize(FakeSolver::works, "lapack"); },
                           {"NVFP4_FACTORS = \"lapack\"", "must be eigen or cusolver"});
}

}  // namespace
}  // namespace nvfp4
