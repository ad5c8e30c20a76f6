#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

/// The parts of cuSOLVER that factor a matrix. It is loaded when the first matrix is factored; no
/// build needs it. Names and values are declared here (source: documentation of cuSOLVER 12).
/// tests/python/test_cusolver.py compares them with NVIDIA's header if there is one.
namespace nvfp4::cuda::cusolver {

// cublasFillMode_t, cublasDiagType_t, cudaDataType, cusolverStatus_t.
inline constexpr int kUpper = 1, kNotUnit = 0, kReal64 = 1, kSuccess = 0;

/// The oldest version, 11.4.0 of CUDA 12.0. cusolverGetVersion() returns 11400 for it.
inline constexpr int kOldestVersion = 11400;

/// Returns why a library of this version cannot be used, or an empty string.
std::string why_unusable(int version);
/// Returns why the installed library cannot be used. The first call loads $NVFP4_CUSOLVER, or
/// libcusolver.so.12 or .11.
std::string why_unusable();
/// Returns "cuSOLVER 12.0.4". The library must be usable.
std::string name();

/// A symmetric matrix [n, n], row-major, on the current device. Only the lower triangle is used.
struct Problem {
  double* h = nullptr;
  std::int64_t n = 0;
  void* stream = nullptr;
  int device = 0;
  void *workspace = nullptr, *host_workspace = nullptr;  ///< sizes from workspace_of()
  int* info = nullptr;                                   ///< two, on the device
};
struct Workspace {
  std::size_t bytes = 0, host_bytes = 0;
};

/// Returns the workspace that suffices for all calls. Throws UnsupportedError, DeviceError.
Workspace workspace_of(const Problem& problem);

/// Enqueues the computation: L⁻¹ with H = L Lᵀ replaces the lower triangle of H. The upper triangle
/// is unchanged. info[0] is not 0 if H is not positive definite, info[1] if L has no inverse. Calls
/// on one device must not run concurrently.
void invert_lower(const Problem& problem, const Workspace& workspace);

}  // namespace nvfp4::cuda::cusolver
