#include "nvfp4/device.h"

#include "testing.h"

namespace nvfp4::device_test {

TEST(Device, IsNamedAndFoundByItsName) {
  EXPECT_EQ(device_from_name("cpu"), Device{});
  EXPECT_EQ(device_from_name("cuda"), Device::cuda());
  EXPECT_EQ(device_from_name("cuda:0"), Device::cuda(0));
  EXPECT_EQ(device_from_name("cuda:12"), Device::cuda(12));
  EXPECT_EQ(device_name({}), "cpu");
  for (const int i : {0, 1, 12}) EXPECT_EQ(device_from_name(device_name(Device::cuda(i))).index, i);
}

TEST(Device, AutoIsTheFirstGpuOrTheCpu) {
  const bool usable = why_unavailable(Device::cuda()).empty();
  EXPECT_EQ(device_from_name("auto"), usable ? Device::cuda() : Device{});
}

TEST(Device, OtherNamesAreRefused) {
  for (const char* name : {"", "CPU", "gpu", "cpu:0", "cuda:", "cuda:-1", "cuda:+1", "cuda: 1",
                           "cuda:1x", "cuda:99999999999", "cuda1", "auto:0"})
    EXPECT_THROW(device_from_name(name), ValueError) << name;
}

TEST(Device, CpuIsAvailableGpu1000IsNot) {
  EXPECT_EQ(why_unavailable({}), "");
  EXPECT_NE(why_unavailable(Device::cuda(999)), "");
  EXPECT_THROW(synchronize(Device::cuda(999)), UnsupportedError);
}

}  // namespace nvfp4::device_test
