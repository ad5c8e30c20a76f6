#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

/// What factoring a matrix needs of cuSOLVER, which is loaded when the first is factored: no build
/// needs it. Names and values are of our own (source: documentation of cuSOLVER 12);
/// tests/python/test_cusolver.py compares them with NVIDIA's header where there is one.
namespace nvfp4::cuda::cusolver {

// cublasFillMode_t, cublasDiagType_t, cudaDataType, cusolverStatus_t.
inline constexpr int kUpper = 1, kNotUnit = 0, kReal64 = 1, kSuccess = 0;

/// cusolverGetVersion(): 11400 of 11.4.0, that of CUDA 12.0.
inline constexpr int kOldestVersion = 11400;

/// Why a library of this version cannot be used, or nothing.
std::string why_unusable(int version);
/// The same of the library that there is: $NVFP4_CUSOLVER, else libcusolver.so.12 or .11, loaded at
/// the first call.
std::string why_unusable();
/// "cuSOLVER 12.0.4". The library can be used.
std::string name();

/// A symmetric matrix [n, n] on the current device, row by row, of which the lower triangle counts.
struct Problem {
  double* h = nullptr;
  std::int64_t n = 0;
  void* stream = nullptr;
  int device = 0;
  void *workspace = nullptr, *host_workspace = nullptr;  ///< of workspace_of()
  int* info = nullptr;                                   ///< two, on the device
};
struct Workspace {
  std::size_t bytes = 0, host_bytes = 0;
};

/// Of all calls. Throws UnsupportedError, DeviceError.
Workspace workspace_of(const Problem& problem);

/// Enqueues it: the inverse of the lower triangular L with H = L Lᵀ takes the place of H; what is
/// above is left as it was. info[0] is not 0 if H is not positive definite, info[1] if L has no
/// inverse. One call at a time on a device.
void invert_lower(const Problem& problem, const Workspace& workspace);

}  // namespace nvfp4::cuda::cusolver
