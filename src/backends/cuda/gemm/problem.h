#pragma once

#include <cstdint>

/// What a product is and what a GPU has, as far as the choice of its kernels depends on them.
namespace nvfp4::cuda {

/// out[m, n] = x[m, k] · W[n, k]ᵀ, for `groups` matrices W.
struct KernelProblem {
  std::int64_t n = 0, k = 0;
  std::int64_t m = 0;  ///< rows of x
  std::int64_t groups = 1;
  /// The groups share the rows out among themselves, the host does not know how; else each has all.
  bool grouped = false;
  /// Each of `groups` rows of out has a group that a routing names; m is 1 then.
  bool routed = false;
  int multiprocessors = 0;  ///< of the GPU: plan_gemm() takes it from the capability
  bool batch_invariant = false;
  bool swiglu = false;
  bool stream_k = false;     ///< there is a workspace for stream-K
  bool quantized_x = false;  ///< x is NVFP4: W4A4
  bool operator==(const KernelProblem&) const = default;
};

/// A GPU.
struct Capability {
  int major = 0, minor = 0;  ///< 9 and 0 of sm_90
  int multiprocessors = 0;
};

}  // namespace nvfp4::cuda
