#pragma once

#include "checkpoint/checkpoints.h"
#include "checkpoint/models.h"
#include "testing.h"

/// Checkpoints that the CPU and the GPU write alike.
namespace nvfp4 {

/// All of the report but what differs from run to run.
inline std::string text_of(QuantizeReport report) {
  report.seconds = 0;
  report.peak_memory_bytes = 0;
  report.device = {};
  return to_json(report);
}

class CudaCheckpoint : public testing::Test {
 protected:
  void SetUp() override {
    if (const std::string reason = why_unavailable(Device::cuda()); !reason.empty())
      GTEST_SKIP() << "no GPU to run on: " << reason;
  }
  void TearDown() override { set_threads(threads_); }

  /// The same files, and the same report.
  void expect_same(QuantizeCheckpointOptions options, const std::string& name) {
    options.output = dir_ / "cpu";
    options.device = {};
    options.overwrite = true;
    const QuantizeReport cpu = quantize_checkpoint(options);
    options.output = dir_ / "cuda";
    options.device = Device::cuda();
    options.wait_for_device = true;
    const QuantizeReport cuda = quantize_checkpoint(options);
    EXPECT_EQ(cuda.device, Device::cuda());
    const auto expected = files_of(dir_ / "cpu"), files = files_of(dir_ / "cuda");
    ASSERT_EQ(files.size(), expected.size()) << name;
    for (const auto& [file, content] : expected)
      EXPECT_TRUE(files.at(file) == content) << name << ": " << file;
    EXPECT_EQ(text_of(cuda), text_of(cpu)) << name;
    for (const TensorReport& t : cuda.tensors)
      EXPECT_EQ(t.action == "quantized", t.squared_norm > 0) << name << ": " << t.name;
  }

  const TempDir dir_;
  const int threads_ = threads();
};

}  // namespace nvfp4
