#pragma once

#include "backends/cuda/device/encode.cuh"
#include "quantizers/row_math.h"

/// Divisions and roots of row_math.h and encode_block.h without their general cases, bit for bit:
/// those are taken where the operands are far from ordinary.
namespace nvfp4::cuda {

/// n / d, correctly rounded, where both and their quotient are far from overflow and underflow;
/// `reciprocal` is 1 / d, correctly rounded.
__device__ inline float ordinary_quotient(float n, float d, float reciprocal) {
  const float q = n * reciprocal;
  return __fmaf_rn(reciprocal, __fmaf_rn(-d, q, n), q);
}

/// global_scale_for() of an amax that was measured, and its encoder.
struct MeasuredScale {
  static constexpr float kLargest = E2M1::kMax * largest_scale(Quantizer::max);
  float amax;
  bool ordinary;
  float divisor;

  __device__ explicit MeasuredScale(float measured)
      : amax(measured), ordinary(amax >= 0x1p-75f && amax <= 0x1p75f) {
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

/// 1 / rms, as reciprocal_rms() has it. `reciprocal`: 1 / n, correctly rounded.
__device__ inline float quick_reciprocal_rms(float sum_of_squares, std::int32_t n, float reciprocal,
                                             float eps) {
  if (sum_of_squares >= 0x1p-60f && sum_of_squares <= 0x1p60f && eps >= 0 && eps <= 0x1p60f) {
    const float x = ordinary_quotient(sum_of_squares, static_cast<float>(n), reciprocal) + eps;
    // The root: an estimate of its reciprocal, and the root corrected by its remainder.
    float r;
    asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
    const float root = x * r;
    return ordinary_reciprocal(__fmaf_rn(__fmaf_rn(-root, root, x), r * 0.5f, root));
  }
  return reciprocal_rms(sum_of_squares, n, eps);
}

}  // namespace nvfp4::cuda
