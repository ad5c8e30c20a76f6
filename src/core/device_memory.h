#pragma once

#include <cstdint>

#include "nvfp4/device.h"

/// Memory and streams of a device other than the CPU. The backend of the device (src/backends/cuda)
/// defines these functions; a build without it has stand-ins. Each throws DeviceError or
/// UnsupportedError.
namespace nvfp4 {

/// The alignment of the memory below, and of every part into which its users divide it.
inline constexpr std::int64_t kDeviceAlignment = 256;

/// Returns zeroed memory, aligned to kDeviceAlignment.
void* device_allocate(Device device, std::int64_t bytes);
void device_free(Device device, void* memory) noexcept;
/// Copies `rows` rows of `row_bytes` bytes each, on the stream of the device that is not the CPU.
void device_copy(Device to_device, void* to, std::int64_t to_stride, Device from_device,
                 const void* from, std::int64_t from_stride, std::int64_t row_bytes,
                 std::int64_t rows, Stream stream);

/// Returns pinned memory of the host, aligned to kDeviceAlignment. The device copies from and to it
/// without the CPU, so that a copy on a stream returns at once.
void* pinned_allocate(Device device, std::int64_t bytes);
void pinned_free(Device device, void* memory) noexcept;

/// Returns a stream that is independent of the default stream: neither waits for the other.
Stream stream_create(Device device);
void stream_destroy(Device device, Stream stream) noexcept;

/// Destroys all that the process has on the device. The process must not use the device again:
/// kernels that have run before may fail.
void device_reset(Device device) noexcept;

class PinnedMemory {
 public:
  PinnedMemory(Device device, std::int64_t bytes)
      : device_(device), data_(pinned_allocate(device, bytes)) {}
  ~PinnedMemory() { pinned_free(device_, data_); }
  PinnedMemory(const PinnedMemory&) = delete;
  PinnedMemory& operator=(const PinnedMemory&) = delete;
  void* data() const { return data_; }

 private:
  Device device_;
  void* data_;
};

class OwnedStream {
 public:
  explicit OwnedStream(Device device) : device_(device), stream_(stream_create(device)) {}
  ~OwnedStream() { stream_destroy(device_, stream_); }
  OwnedStream(const OwnedStream&) = delete;
  OwnedStream& operator=(const OwnedStream&) = delete;
  Stream get() const { return stream_; }

 private:
  Device device_;
  Stream stream_;
};

}  // namespace nvfp4
