// Replaces the CUDA backend in a build without CUDA.
#include "backends/cuda/gemm_backend.h"
#include "backends/cuda_build.h"
#include "backends/device_backend.h"
#include "backends/gpu_limits.h"
#include "core/device_memory.h"
#include "core/require.h"

namespace nvfp4 {
namespace {
[[noreturn]] void refuse(Device device) {
  throw UnsupportedError(fmt::format("device = cuda:{}: {}", device.index, why_unavailable(device)),
                         ErrorCode::device_unavailable);
}
}  // namespace

CudaBuild cuda_build() { return {}; }
std::vector<DeviceInfo> cuda_devices() { return {}; }

std::string why_unavailable(Device device) {
  return device.type == DeviceType::cpu ? ""
                                        : "this build of nvfp4 is without CUDA; "
                                          "cmake -DNVFP4_CUDA=ON with a toolkit of 12.9 or newer "
                                          "makes one that has it";
}

void synchronize(Device device, Stream) {
  if (device.type != DeviceType::cpu) refuse(device);
}

GpuLimits gpu_limits(Device device) { refuse(device); }

const DeviceBackend& device_backend(Device device) { refuse(device); }
const GemmBackend& cuda::gpu_gemm_backend(Device device) { refuse(device); }
void* device_allocate(Device device, std::int64_t) { refuse(device); }
void device_free(Device, void*) noexcept {}
void device_copy(Device to_device, void*, std::int64_t, Device from_device, const void*,
                 std::int64_t, std::int64_t, std::int64_t, Stream) {
  refuse(to_device.type == DeviceType::cpu ? from_device : to_device);
}
void* pinned_allocate(Device device, std::int64_t) { refuse(device); }
void pinned_free(Device, void*) noexcept {}
Stream stream_create(Device device) { refuse(device); }
void stream_destroy(Device, Stream) noexcept {}
void device_reset(Device) noexcept {}

}  // namespace nvfp4
