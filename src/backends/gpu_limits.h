#pragma once

#include <cstdint>

#include "nvfp4/device.h"

namespace nvfp4 {

/// The limits that a GPU reports; 0: unknown.
struct GpuLimits {
  int multiprocessors = 0;
  std::int64_t memory_bytes = 0;
  double clock_mhz = 0;    ///< highest clock of the multiprocessors
  double memory_gb_s = 0;  ///< two transfers in a memory clock, times the bus width
};
/// Returns the limits of a GPU. Throws UnsupportedError if the device cannot be used.
GpuLimits gpu_limits(Device device);

}  // namespace nvfp4
