#pragma once

#include <cstdint>

/// The properties of a GEMM and of a GPU on which the choice of kernels depends.
namespace nvfp4::cuda {

/// The GEMM out[m, n] = x[m, k] · W[n, k]ᵀ, for `groups` matrices W.
struct KernelProblem {
  std::int64_t n = 0, k = 0;
  std::int64_t m = 0;  ///< rows of x
  std::int64_t groups = 1;
  /// True if the rows are divided among the groups in a way that the host does not know. Otherwise
  /// every group has all rows.
  bool grouped = false;
  /// True if a routing names the group of each of `groups` rows of out; m is 1 then.
  bool routed = false;
  int multiprocessors = 0;  ///< plan_kernels() copies it from the capability
  bool batch_invariant = false;
  bool swiglu = false;
  bool stream_k = false;     ///< a workspace for stream-K exists
  bool quantized_x = false;  ///< x is NVFP4: W4A4
  bool operator==(const KernelProblem&) const = default;
};

struct Capability {
  int major = 0, minor = 0;  ///< 9 and 0 for sm_90
  int multiprocessors = 0;
};

}  // namespace nvfp4::cuda
