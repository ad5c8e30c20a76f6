#pragma once

#include "backends/cuda/device/encode.cuh"
#include "quantizers/row_math.h"

/// Divisions and roots of row_math.h and encode_block.h without their general cases, bit for bit:
/// those are taken where the operands are far from ordinary.
namespace nvfp4::cuda {

/// n / d, correctly rounded, where both and their quotient are far from overflow and underflow.
__device__ inline float ordinary_quotient(float n, float d) {
  const float r = ordinary_reciprocal(d);
  const float q = n * r;
  return __fmaf_rn(r, __fmaf_rn(-d, q, n), q);
}

/// divisor of global_scale_for().
__device__ inline float measured_divisor(float amax) {
  if (amax >= 0x1p-75f && amax <= 0x1p90f)
    return ordinary_quotient(E2M1::kMax * largest_scale(Quantizer::max), amax);
  return global_scale_for(amax, Quantizer::max).divisor;
}

/// 1 / rms, as reciprocal_rms() has it.
__device__ inline float quick_reciprocal_rms(float sum_of_squares, std::int32_t n, float eps) {
  if (sum_of_squares >= 0x1p-60f && sum_of_squares <= 0x1p60f && eps >= 0 && eps <= 0x1p60f) {
    const float x = ordinary_quotient(sum_of_squares, static_cast<float>(n)) + eps;
    // The root: an estimate of its reciprocal, and the root corrected by its remainder.
    float r;
    asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
    const float root = x * r;
    return ordinary_reciprocal(__fmaf_rn(__fmaf_rn(-root, root, x), r * 0.5f, root));
  }
  return reciprocal_rms(sum_of_squares, n, eps);
}

}  // namespace nvfp4::cuda
