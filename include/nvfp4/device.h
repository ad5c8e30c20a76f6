#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

/// Devices, which hold data, and streams, which order work.
namespace nvfp4 {

/// The kinds of devices.
enum class DeviceType : std::uint8_t { cpu, cuda };

/// The CPU, or the GPU with this index.
struct Device {
  DeviceType type = DeviceType::cpu;
  int index = 0;
  bool operator==(const Device&) const = default;

  static constexpr Device cuda(int index = 0) { return {DeviceType::cuda, index}; }
};

/// Returns "cpu" or "cuda:0".
std::string device_name(Device device);
/// Returns the device with this name: "cpu", "cuda" (which is cuda:0) or "cuda:N". It need not be
/// usable. "auto" is cuda:0 if that is usable, else the CPU. Throws ValueError for other names.
Device device_from_name(std::string_view name);

/// A CUDA stream (cudaStream_t); null is the default stream. Operations on CUDA tensors are
/// enqueued on it and return at once. Their arguments must outlive the work. The CPU ignores the
/// stream.
struct Stream {
  void* handle = nullptr;
};

/// A GPU, usable or not.
struct DeviceInfo {
  Device device;
  std::string name;
  std::string architecture;  ///< such as "sm_90"
  bool available = false;
  std::string reason;  ///< reason if not available
};

/// Returns the GPUs of the CUDA driver. The list is empty without a driver, or in a build without
/// CUDA.
std::vector<DeviceInfo> cuda_devices();

/// Returns the reason why `device` cannot be used, or "" if it can. Reasons are no CUDA in this
/// build, no driver, no such GPU, and no kernels for its architecture.
std::string why_unavailable(Device device);

/// Waits for all work on the stream. Throws DeviceError.
void synchronize(Device device, Stream stream = {});

}  // namespace nvfp4
