#pragma once

#include <cstdint>
#include <functional>

namespace nvfp4 {

/// Calls fn(i) once for each i in [0, n), on the threads of the one pool, the caller's included.
/// Indices are handed out in order, one at a time. A call from a thread of
/// the pool runs on that thread alone.
/// The first exception that fn throws is rethrown here, after every running call has ended.
void parallel_for(std::int64_t n, const std::function<void(std::int64_t)>& fn);

}  // namespace nvfp4
