#pragma once

#include "backends/cuda/ptx/mma_block_scaled.cuh"

namespace nvfp4::cuda::sm120 {

/// Multiplies by the instruction.
struct Omma {
  /// kA and kB are the thread ids of the scales.
  template <int kA = 0, int kB = 0>
  __device__ __forceinline__ static void multiply(float (&d)[4], const std::uint32_t (&a)[4],
                                                  std::uint32_t b0, std::uint32_t b1,
                                                  std::uint32_t a_scales, std::uint32_t b_scales) {
    ptx::mma_m16n8k64_nvfp4<kA, kB>(d, a, b0, b1, a_scales, b_scales);
  }
};

}  // namespace nvfp4::cuda::sm120
