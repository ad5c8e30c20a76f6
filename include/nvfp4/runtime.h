#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace nvfp4 {

/// One implementation of the operations. "reference" defines the right answer; "cpu" is the best
/// SIMD target of this machine; other names, such as "cpu-avx2", force one.
struct BackendInfo {
  std::string name;
  bool available = false;
  std::string reason;       ///< why not, when it is not available
  std::string description;  ///< for people
};

/// Every backend of this build, those that cannot run here too, best first.
std::vector<BackendInfo> backends();

/// The backend that `name` selects: "" means NVFP4_BACKEND from the environment, and without it
/// the best available one. Throws UnsupportedError, with the reason, if it cannot run here.
BackendInfo select_backend(std::string_view name = {});

/// Threads of the one pool that every operation shares, the caller's included. 0 means
/// NVFP4_THREADS from the environment, else the CPUs this process may use. Results never depend
/// on it. Not to be called while an operation runs.
void set_threads(int threads);
int threads();

/// Runs body(data) on `count` threads, the caller's included, and returns when each has ended;
/// `flags` is 0. The form of GOMP_parallel of libgomp.
using ParallelRegion = void (*)(void (*body)(void*), void* data, unsigned count, unsigned flags);

/// From now on every operation runs on threads() threads of another runtime, such as the OpenMP of
/// an application: threads of two pools would keep each other from the CPUs. nullptr, as at first:
/// on threads of our own, as in a child after fork(). Not to be called while an operation runs.
void set_parallel_region(ParallelRegion region);

const char* version();

}  // namespace nvfp4
