#pragma once

#include "backends/cuda/device/encode.cuh"
#include "quantizers/row_math.h"

/// Divisions and roots of row_math.h and encode_block.h without special cases, with the same bits.
/// Callers use the general functions for operands that are not ordinary.
namespace nvfp4::cuda {

/// Returns n / d, correctly rounded. Both and the quotient must be far from overflow and underflow.
/// `reciprocal` is 1 / d, correctly rounded.
__device__ inline float ordinary_quotient(float n, float d, float reciprocal) {
  const float q = n * reciprocal;
  return __fmaf_rn(reciprocal, __fmaf_rn(-d, q, n), q);
}

/// Reports whether neither the global scale nor values derived from it approach overflow or
/// underflow.
__device__ inline bool is_ordinary_amax(float amax) { return amax >= 0x1p-75f && amax <= 0x1p75f; }

/// Computes global_scale_for() of a measured amax.
struct MeasuredScale {
  static constexpr float kLargest = E2M1::kMax * largest_scale(Quantizer::max);
  float amax;
  bool ordinary;
  float divisor;

  __device__ explicit MeasuredScale(float measured)
      : MeasuredScale(measured, is_ordinary_amax(measured)) {}
  __device__ MeasuredScale(float measured, bool is_ordinary)
      : amax(measured), ordinary(is_ordinary) {
    if (ordinary) [[likely]]
      divisor = ordinary_quotient(kLargest, amax, ordinary_reciprocal(amax));
    else
      divisor = global_scale_for(amax, Quantizer::max).divisor;
  }
  __device__ float multiplier() const {
    if (ordinary) [[likely]]
      return ordinary_quotient(amax, kLargest, 1.0f / kLargest);
    return global_scale_for(amax, Quantizer::max).multiplier;
  }
};

/// Returns 1 / √x, root and reciprocal each correctly rounded, for 2^-60 <= x <= 2^60. An estimate
/// gives the root, which its remainder corrects.
__device__ inline float ordinary_reciprocal_root(float x) {
  float r;
  asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
  const float root = x * r;
  return ordinary_reciprocal(__fmaf_rn(__fmaf_rn(-root, root, x), r * 0.5f, root));
}

/// Returns 1 / rms, as in reciprocal_rms(). `reciprocal` is 1 / n, correctly rounded.
__device__ inline float fast_reciprocal_rms(float sum_of_squares, std::int32_t n, float reciprocal,
                                            float eps) {
  if (sum_of_squares >= 0x1p-60f && sum_of_squares <= 0x1p60f && eps >= 0 && eps <= 0x1p60f)
    return ordinary_reciprocal_root(
        ordinary_quotient(sum_of_squares, static_cast<float>(n), reciprocal) + eps);
  return reciprocal_rms(sum_of_squares, n, eps);
}

}  // namespace nvfp4::cuda
