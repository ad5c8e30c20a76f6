// A device that is given back. Skipped, with the reason, without one.
#include <cuda_runtime_api.h>

#include "checkpoint/checkpoints.h"

namespace nvfp4::release_test {

cudaMemoryType type_of(const void* memory) {
  cudaPointerAttributes attributes{};
  (void)cudaPointerGetAttributes(&attributes, memory);
  return attributes.type;
}

/// In a process of its own: what other tests have on the device would be gone, too.
TEST(CudaRelease, CheckpointHasCpuBytesAndFreesTheDevice) {
  if (const std::string reason = why_unavailable(Device::cuda()); !reason.empty())
    GTEST_SKIP() << "no GPU to run on: " << reason;
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto run = [] {
    const TempDir dir;
    write_model(dir / "in",
                {{random_tensor("a.o_proj.weight", {9000, 2048})},
                 {random_tensor("b.o_proj.weight", {30000, 2048}),
                  random_tensor("c.down_proj.weight", {5001, 2064}, safetensors::DType::f32)}},
                "{}");
    auto options = quantize_options(dir / "in", dir / "cpu");
    quantize_checkpoint(options);
    options.output = dir / "cuda";
    options.device = Device::cuda();
    options.wait_for_device = options.release_device = true;
    void* memory = nullptr;
    if (cudaMalloc(&memory, 1) != cudaSuccess || type_of(memory) != cudaMemoryTypeDevice) return 2;
    quantize_checkpoint(options);
    if (type_of(memory) == cudaMemoryTypeDevice) return 3;
    return files_of(dir / "cpu") == files_of(dir / "cuda") ? 0 : 4;
  };
  EXPECT_EXIT(std::exit(run()), testing::ExitedWithCode(0), "");
}

}  // namespace nvfp4::release_test
