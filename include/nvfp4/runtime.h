#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace nvfp4 {

/// An implementation of the operations. "reference" defines the correct result. "cpu" is the best
/// SIMD target of this machine. Other names, such as "cpu-avx2", select one target.
struct BackendInfo {
  std::string name;
  bool available = false;
  std::string reason;       ///< reason if not available
  std::string description;  ///< text for people
};

/// Returns every backend of this build, best first, also those that this machine cannot run.
std::vector<BackendInfo> backends();

/// Returns the backend with this name. "" is NVFP4_BACKEND from the environment, or without it the
/// best available one. Throws ValueError, which lists the names, for an unknown name. Throws
/// UnsupportedError, with the reason, if this machine cannot run the backend.
BackendInfo select_backend(std::string_view name = {});

/// Sets the number of threads of the common pool, the caller's thread included. 0 means
/// NVFP4_THREADS from the environment, else the CPUs that this process may use. Results never
/// depend on it. No operation may run during the call.
void set_threads(int threads);
/// Returns the number of threads of the common pool, the caller's thread included.
int threads();

/// A function that runs body(data) on `count` threads, the caller's included, and returns when all
/// have ended. `flags` is 0. It has the signature of GOMP_parallel in libgomp.
using ParallelRegion = void (*)(void (*body)(void*), void* data, unsigned count, unsigned flags);

/// Runs all later operations on threads() threads of another runtime, such as the OpenMP of an
/// application. Two pools would compete for the CPUs. nullptr selects the library's pool. This is
/// the default, also in a child after fork(). No operation may run during the call.
void set_parallel_region(ParallelRegion region);

/// Returns the version of the library.
const char* version();

}  // namespace nvfp4
