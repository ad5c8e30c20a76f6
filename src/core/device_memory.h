#pragma once

#include <cstdint>

#include "nvfp4/device.h"

/// Memory and streams of a device other than the CPU. Defined by the backend of that device
/// (src/backends/cuda), or by its stand-in in a build without it. Each throws DeviceError or
/// UnsupportedError.
namespace nvfp4 {

/// Of the memory that the functions below give, and of every part that its users divide it into.
inline constexpr std::int64_t kDeviceAlignment = 256;

/// Zeroed, aligned to kDeviceAlignment.
void* device_allocate(Device device, std::int64_t bytes);
void device_free(Device device, void* memory) noexcept;
/// `rows` rows of `row_bytes` bytes each, on the stream of the device that is not the CPU.
void device_copy(Device to_device, void* to, std::int64_t to_stride, Device from_device,
                 const void* from, std::int64_t from_stride, std::int64_t row_bytes,
                 std::int64_t rows, Stream stream);

/// Memory of the host that the device copies from and to without the CPU's help, so that a copy on
/// a stream returns at once. Aligned to kDeviceAlignment.
void* pinned_allocate(Device device, std::int64_t bytes);
void pinned_free(Device device, void* memory) noexcept;

/// A stream that neither waits for the default stream nor makes it wait.
Stream stream_create(Device device);
void stream_destroy(Device device, Stream stream) noexcept;

/// All that the process has on the device. It is not to be used again: kernels
/// that have run before may fail.
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
