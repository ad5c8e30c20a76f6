#pragma once

#include <cstdint>
#include <functional>

namespace nvfp4 {

/// Calls fn(i) once for each i in [0, n), on the threads of the common pool, the caller's thread
/// included. Indices are assigned in order, one at a time. A call from a thread of the pool runs on
/// that thread alone. The first exception of fn is thrown again after all running calls have ended.
void parallel_for(std::int64_t n, const std::function<void(std::int64_t)>& fn);

}  // namespace nvfp4
