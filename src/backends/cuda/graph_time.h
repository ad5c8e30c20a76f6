#pragma once

#include <cstdint>
#include <functional>

#include "nvfp4/device.h"

/// Measures times on a GPU. A graph holds one call for each copy of the inputs, which together
/// exceed the L2 cache. The result is the median of several replays, divided by the number of
/// calls.
namespace nvfp4::cuda {

inline constexpr std::int64_t kRotated = 340'000'000;  ///< bytes of input of all calls

/// Returns the time of one call on the current device in microseconds. `call(i, stream)` enqueues
/// call i of `calls`. Throws DeviceError.
double graph_time(std::int64_t calls, const std::function<void(std::int64_t, Stream)>& call,
                  int replays = 15);

}  // namespace nvfp4::cuda
