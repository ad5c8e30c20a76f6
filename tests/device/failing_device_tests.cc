// A device that fails in the middle of a checkpoint: nothing goes under what it still works on.
#include "checkpoint/statistics_file.h"
#include "device/cpu_as_device.h"
#include "nvfp4/error.h"
#include "testing.h"

namespace nvfp4 {
namespace {

class FailingDevice : public testing::TestWithParam<const char*> {
 protected:
  void TearDown() override { fail_to_enqueue(0); }
  const TempDir dir_;
};

TEST_P(FailingDevice, IsWaitedForWhateverFailed) {
  write_tiny_llama(dir_ / "in");
  write_llama_grams(dir_ / "stats.safetensors");
  auto options = quantize_options(
      dir_ / "in", dir_ / "out",
      {"--method", GetParam(), "--statistics", dir_ / "stats.safetensors", "--overwrite"});
  options.device = Device::cuda();
  options.wait_for_device = true;
  int failures = 0;
  for (int n = 1; n < 1000; ++n) {
    fail_to_enqueue(n);
    try {
      quantize_checkpoint(options);
      break;  // there are fewer than n
    } catch (const DeviceError& e) {
      ++failures;
      EXPECT_STREQ(e.what(), "as the test wants it");
    }
    ASSERT_EQ(given_up_work(), 0u) << "piece " << n << " failed";
  }
  EXPECT_GT(failures, 30);
  EXPECT_LT(failures, 999);
}

INSTANTIATE_TEST_SUITE_P(By, FailingDevice, testing::Values("weighted", "gptq"),
                         [](const auto& i) { return std::string(i.param); });

}  // namespace
}  // namespace nvfp4
