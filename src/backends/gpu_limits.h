#pragma once

#include <cstdint>

#include "nvfp4/device.h"

namespace nvfp4 {

/// What a GPU has, by its own account; 0: not known.
struct GpuLimits {
  int multiprocessors = 0;
  std::int64_t memory_bytes = 0;
  double clock_mhz = 0;    ///< of the multiprocessors, at most
  double memory_gb_s = 0;  ///< two transfers in a clock of the memory, times its width
};
/// Throws UnsupportedError if it cannot be used.
GpuLimits gpu_limits(Device device);

}  // namespace nvfp4
