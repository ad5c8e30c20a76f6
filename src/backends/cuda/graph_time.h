#pragma once

#include <cstdint>
#include <functional>

#include "nvfp4/device.h"

/// Times on a GPU: a graph holds one call for each copy of the inputs, which together are larger
/// than the L2 cache; the time is that of a replay over the number of calls, the median of several.
namespace nvfp4::cuda {

inline constexpr std::int64_t kRotated = 340'000'000;  ///< bytes of input that are gone through

/// Microseconds of one call on the current device; `call(i, stream)` enqueues call i of `calls`.
/// Throws DeviceError.
double graph_time(std::int64_t calls, const std::function<void(std::int64_t, Stream)>& call,
                  int replays = 15);

}  // namespace nvfp4::cuda
