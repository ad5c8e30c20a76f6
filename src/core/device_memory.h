#pragma once

#include <cstdint>

#include "nvfp4/device.h"

/// Memory of a device other than the CPU. Defined by the backend of that device
/// (src/backends/cuda), or by its stand-in in a build without it. Each throws DeviceError or
/// UnsupportedError.
namespace nvfp4 {

/// Zeroed, 256-byte aligned.
void* device_allocate(Device device, std::int64_t bytes);
void device_free(Device device, void* memory) noexcept;
/// `rows` rows of `row_bytes` bytes each, on the stream of the device that is not the CPU.
void device_copy(Device to_device, void* to, std::int64_t to_stride, Device from_device,
                 const void* from, std::int64_t from_stride, std::int64_t row_bytes,
                 std::int64_t rows, Stream stream);

}  // namespace nvfp4
