#include "backends/cuda/runtime.h"

#include <cuda_runtime_api.h>

#include <array>
#include <atomic>
#include <mutex>
#include <vector>

#include "backends/cuda/gpu_targets.h"
#include "backends/cuda_build.h"
#include "backends/gpu_limits.h"
#include "core/device_memory.h"
#include "core/require.h"

namespace nvfp4 {
namespace cuda {

void check(cudaError_t status, const char* what) {
  if (status == cudaSuccess) return;
  (void)cudaGetLastError();  // clear the error, or the next call reports it again
  throw DeviceError(
      fmt::format("{}: {}", what, cudaGetErrorString(status)),
      status == cudaErrorMemoryAllocation ? ErrorCode::device_memory : ErrorCode::device);
}

Current::Current(Device device) {
  check(cudaGetDevice(&previous_), "cudaGetDevice");
  if (previous_ == device.index) return;
  check(cudaSetDevice(device.index), "cudaSetDevice");
  changed_ = true;
}

Current::~Current() {
  if (changed_) (void)cudaSetDevice(previous_);
}

namespace {

/// Lets this thread free memory while another thread captures a graph; CUDA would otherwise
/// invalidate the capture. No captured work uses memory that its owner frees.
class DuringCapture {
 public:
  DuringCapture() { (void)cudaThreadExchangeStreamCaptureMode(&mode_); }
  ~DuringCapture() { (void)cudaThreadExchangeStreamCaptureMode(&mode_); }
  DuringCapture(const DuringCapture&) = delete;
  DuringCapture& operator=(const DuringCapture&) = delete;

 private:
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
};

/// The machine code targets of the build.
constexpr std::string_view kGpuTargets = NVFP4_GPU_TARGETS;

/// The properties of a GPU. They are read once, because they do not change.
struct Gpu {
  DeviceInfo info;
  int multiprocessors = 0, compute_major = 0, compute_minor = 0, shared_bytes = 0;
};

struct Gpus {
  std::vector<Gpu> list;
  std::string reason;  ///< why there is none
};

const Gpus& gpus() {
  static const Gpus all = [] {
    Gpus found;
    int count = 0;
    if (const cudaError_t status = cudaGetDeviceCount(&count); status != cudaSuccess) {
      (void)cudaGetLastError();
      found.reason = cudaGetErrorString(status);
      int driver = 0;
      if (status == cudaErrorInsufficientDriver && cudaDriverGetVersion(&driver) == cudaSuccess)
        found.reason = driver_fault(CUDART_VERSION, driver);
      return found;
    }
    for (int i = 0; i < count; ++i) {
      cudaDeviceProp properties{};
      if (cudaGetDeviceProperties(&properties, i) != cudaSuccess) break;
      Gpu gpu;
      gpu.info.device = Device::cuda(i);
      gpu.info.name = properties.name;
      gpu.info.architecture = fmt::format("sm_{}{}", properties.major, properties.minor);
      gpu.info.available = has_machine_code(kGpuTargets, properties.major, properties.minor);
      if (!gpu.info.available)
        gpu.info.reason =
            fmt::format("{} is {}; this build has machine code for {} (NVFP4_CUDA_ARCHITECTURES)",
                        gpu.info.name, gpu.info.architecture, kGpuTargets);
      gpu.multiprocessors = properties.multiProcessorCount;
      gpu.shared_bytes = static_cast<int>(properties.sharedMemPerBlockOptin);
      gpu.compute_major = properties.major;
      gpu.compute_minor = properties.minor;
      found.list.push_back(gpu);
    }
    if (found.list.empty()) found.reason = "no CUDA device";
    return found;
  }();
  return all;
}

}  // namespace

int multiprocessors(Device device) {
  return gpus().list.at(static_cast<std::size_t>(device.index)).multiprocessors;
}

int shared_bytes(Device device) {
  return gpus().list.at(static_cast<std::size_t>(device.index)).shared_bytes;
}
int compute_major(Device device) {
  return gpus().list.at(static_cast<std::size_t>(device.index)).compute_major;
}
int compute_minor(Device device) {
  return gpus().list.at(static_cast<std::size_t>(device.index)).compute_minor;
}
bool has_dependent_launch() {
  int device = 0;
  check(cudaGetDevice(&device), "cudaGetDevice");
  return compute_major(Device::cuda(device)) >= 9;
}

}  // namespace cuda

CudaBuild cuda_build() {
  constexpr int kVersion = CUDART_VERSION;
  return {.version = fmt::format("{}.{}", kVersion / 1000, kVersion % 1000 / 10),
          .driver = fmt::format("{}", cuda::oldest_driver(kVersion / 1000)),
          .architectures = std::string(cuda::kGpuTargets)};
}

std::vector<DeviceInfo> cuda_devices() {
  std::vector<DeviceInfo> list;
  for (const cuda::Gpu& gpu : cuda::gpus().list) list.push_back(gpu.info);
  return list;
}

std::string why_unavailable(Device device) {
  if (device.type == DeviceType::cpu) return "";
  const cuda::Gpus& all = cuda::gpus();
  if (all.list.empty()) return all.reason;
  if (device.index < 0 || device.index >= static_cast<int>(all.list.size()))
    return fmt::format("there are {} CUDA devices", all.list.size());
  return all.list[static_cast<std::size_t>(device.index)].info.reason;
}

namespace {
void require_available(Device device) {
  const std::string reason = why_unavailable(device);
  require<UnsupportedError>(reason.empty(), ErrorCode::device_unavailable, "device = cuda:{}: {}",
                            device.index, reason);
}
/// Returns an attribute of the device, or 0 if the driver does not provide it.
double attribute_of(Device device, cudaDeviceAttr attribute) {
  int value = 0;
  if (cudaDeviceGetAttribute(&value, attribute, device.index) != cudaSuccess) {
    (void)cudaGetLastError();
    return 0;
  }
  return value;
}
}  // namespace

GpuLimits gpu_limits(Device device) {
  require_available(device);
  const cuda::Current current(device);
  std::size_t unused = 0, total = 0;
  cuda::check(cudaMemGetInfo(&unused, &total), "cudaMemGetInfo");
  // Clock rates are in kHz, the bus width in bits.
  return {.multiprocessors = cuda::multiprocessors(device),
          .memory_bytes = static_cast<std::int64_t>(total),
          .clock_mhz = attribute_of(device, cudaDevAttrClockRate) * 1e-3,
          .memory_gb_s = 2 * attribute_of(device, cudaDevAttrMemoryClockRate) * 1e3 *
                         attribute_of(device, cudaDevAttrGlobalMemoryBusWidth) / 8 * 1e-9};
}

void synchronize(Device device, Stream stream) {
  if (device.type == DeviceType::cpu) return;
  require_available(device);
  const cuda::Current current(device);
  cuda::check(cudaStreamSynchronize(cuda::stream_of(stream)), "cudaStreamSynchronize");
}

void* device_allocate(Device device, std::int64_t bytes) {
  require_available(device);
  const cuda::Current current(device);
  void* memory = nullptr;
  cuda::check(cudaMalloc(&memory, static_cast<std::size_t>(bytes)), "cudaMalloc");
  cuda::check(cudaMemset(memory, 0, static_cast<std::size_t>(bytes)), "cudaMemset");
  cuda::check(cudaStreamSynchronize(nullptr), "cudaMemset");
  return memory;
}

void device_free(Device, void* memory) noexcept {
  const cuda::DuringCapture allowed;
  (void)cudaFree(memory);
}

void device_copy(Device to_device, void* to, std::int64_t to_stride, Device from_device,
                 const void* from, std::int64_t from_stride, std::int64_t row_bytes,
                 std::int64_t rows, Stream stream) {
  const Device gpu = to_device.type == DeviceType::cuda ? to_device : from_device;
  require_available(gpu);
  const cuda::Current current(gpu);
  const auto size = [](std::int64_t n) { return static_cast<std::size_t>(n); };
  if (to_stride == row_bytes && from_stride == row_bytes)
    cuda::check(cudaMemcpyAsync(to, from, size(row_bytes * rows), cudaMemcpyDefault,
                                cuda::stream_of(stream)),
                "cudaMemcpyAsync");
  else
    cuda::check(cudaMemcpy2DAsync(to, size(to_stride), from, size(from_stride), size(row_bytes),
                                  size(rows), cudaMemcpyDefault, cuda::stream_of(stream)),
                "cudaMemcpy2DAsync");
}

void* pinned_allocate(Device device, std::int64_t bytes) {
  require_available(device);
  const cuda::Current current(device);
  void* memory = nullptr;
  cuda::check(cudaHostAlloc(&memory, static_cast<std::size_t>(bytes), cudaHostAllocDefault),
              "cudaHostAlloc");
  return memory;
}

void pinned_free(Device, void* memory) noexcept {
  const cuda::DuringCapture allowed;
  (void)cudaFreeHost(memory);
}

Stream stream_create(Device device) {
  require_available(device);
  const cuda::Current current(device);
  cudaStream_t stream = nullptr;
  cuda::check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreate");
  return {stream};
}

void stream_destroy(Device, Stream stream) noexcept {
  (void)cudaStreamDestroy(cuda::stream_of(stream));
}

void device_reset(Device device) noexcept {
  if (cudaSetDevice(device.index) == cudaSuccess) (void)cudaDeviceReset();
}

}  // namespace nvfp4
