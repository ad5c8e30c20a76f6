#pragma once

#include <cstdint>

namespace nvfp4::cuda::ptx {

/// Returns the nearest E4M3 of two FP16, the lower half in the lower byte (sm_89).
__device__ __forceinline__ std::uint32_t cvt_e4m3x2_f16x2(std::uint32_t halves) {
  std::uint16_t codes;
  asm("cvt.rn.satfinite.e4m3x2.f16x2 %0, %1;" : "=h"(codes) : "r"(halves));
  return codes;
}

/// Returns the nearest E4M3 of two FP32, `low` in the lower byte (sm_89).
__device__ __forceinline__ std::uint32_t cvt_e4m3x2_f32(float low, float high) {
  std::uint16_t codes;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(codes) : "f"(high), "f"(low));
  return codes;
}

}  // namespace nvfp4::cuda::ptx
