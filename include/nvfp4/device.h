#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

/// Where data lies, and in which order work on it runs.
namespace nvfp4 {

enum class DeviceType : std::uint8_t { cpu, cuda };

struct Device {
  DeviceType type = DeviceType::cpu;
  int index = 0;
  bool operator==(const Device&) const = default;

  static constexpr Device cuda(int index = 0) { return {DeviceType::cuda, index}; }
};

/// "cpu" or "cuda:0".
std::string device_name(Device device);
/// The device that "cpu", "cuda" (which is cuda:0) or "cuda:N" names, whether it can be used or
/// not; "auto" is cuda:0 if that can be used, else the CPU. Throws ValueError for other names.
Device device_from_name(std::string_view name);

/// A CUDA stream, as cudaStream_t; null is the default stream. Operations on CUDA tensors are
/// enqueued on it and return at once; their arguments must outlive the work. The CPU ignores it.
struct Stream {
  void* handle = nullptr;
};

/// One GPU, usable or not.
struct DeviceInfo {
  Device device;
  std::string name;
  std::string architecture;  ///< "sm_90"
  bool available = false;
  std::string reason;  ///< why not, when it is not available
};

/// The GPUs that the CUDA driver shows; empty without one, or in a build without CUDA.
std::vector<DeviceInfo> cuda_devices();

/// Why no operation can run on `device`: no CUDA in this build, no driver, no such GPU, an
/// architecture that this build has no kernels for. Empty if it can.
std::string why_unavailable(Device device);

/// Waits for all work on the stream. Throws DeviceError.
void synchronize(Device device, Stream stream = {});

}  // namespace nvfp4
