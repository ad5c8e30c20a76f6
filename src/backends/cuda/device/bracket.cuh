#pragma once

#include "backends/cuda/device/encode.cuh"

/// Encodes values that are known up to a relative error. If both ends of a value's interval have
/// the same code, that is its code. Otherwise the value is in doubt, and the caller must compute
/// exactly.
namespace nvfp4::cuda {

/// The interval of a code's steps, see e2m1_biased(). `error` is the relative error of a value, at
/// most 2^-10. The interval also covers the roundings of both products with a factor, and of these
/// constants.
struct Bracket {
  float high, low;
#if !NVFP4_NATIVE_FP4
  float above_high, above_low;
#endif

  __device__ __forceinline__ explicit Bracket(float error) {
    error += 0x1p-21f;
    high = 4.0f + 4.0f * error;
    low = 4.0f - 4.0f * error;
#if !NVFP4_NATIVE_FP4
    above_high = kAbove + error;
    above_low = kAbove - error;
#endif
  }
};

/// Same as encode8(). It changes `doubt` if a code is in doubt.
__device__ __forceinline__ std::uint32_t encode8_between(const float* x, float eighth,
                                                         const Bracket& b, std::uint32_t& doubt) {
#if NVFP4_NATIVE_FP4
  const std::uint32_t word = encode8(x, x, eighth * (0.25f * b.high));
  doubt += word ^ encode8(x, x, eighth * (0.25f * b.low));
  return word;
#else
  const float quarter = 2.0f * eighth;
  std::uint32_t sum = 0;
#pragma unroll
  for (int i = 7; i >= 0; --i) {
    const float a = saturated_product(fabsf(x[i]), eighth);
    const float to_4 = saturated_product(fabsf(x[i]), quarter);
    const auto code = [&](float four, float above) {
      return __float_as_uint(__fmaf_rn(a, above, __fmaf_rn(to_4, four, 0x1p23f - 2.0f)));
    };
    const std::uint32_t most = code(b.high, b.above_high);
    doubt += most - code(b.low, b.above_low);  // never negative
    sum = sum * 16 + most;
  }
  return (sum - kCodeBias * 0x11111111u) | (sign_bits(x) & 0x88888888u);
#endif
}

}  // namespace nvfp4::cuda
