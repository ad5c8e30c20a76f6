#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <functional>

#include "backends/cuda/graph_time.h"
#include "nvfp4/device.h"
#include "nvfp4/error.h"

/// Times on a GPU, measured as in tuning.
namespace nvfp4::bench {

using cuda::kRotated;

inline void check(cudaError_t status) {
  if (status != cudaSuccess) throw DeviceError(cudaGetErrorString(status));
}

/// Returns the microseconds of one call. `call(i, stream)` works on copy i of `copies`.
inline double measure(std::int64_t copies, const std::function<void(std::int64_t, Stream)>& call,
                      int replays = 15) {
  return cuda::graph_time(copies, call, replays);
}

}  // namespace nvfp4::bench
