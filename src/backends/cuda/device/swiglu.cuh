#pragma once

#include "backends/cuda/device/block.cuh"
#include "quantizers/row_math.h"

namespace nvfp4::cuda {

inline constexpr float kFastGate = 87.0f;  ///< e^±x is a normal number up to here
/// Bits of kFastGate.
template <DType kType>
inline constexpr std::uint32_t kFastGateBits = kType == DType::bf16  ? 0x42AEu
                                               : kType == DType::f16 ? 0x5570u
                                                                     : 0x42AE0000u;

/// silu() of row_math.h for |x| <= kFastGate, bit for bit: no step can overflow, so that 2^n is one
/// integer addition, and the division needs neither scaling nor its checks.
__device__ inline float silu_fast(float x) {
  const float shifted = __fmaf_rn(x, -kLog2E, kRoundMagic);
  const float n = shifted - kRoundMagic;
  const float r = __fmaf_rn(n, -kLn2Low, __fmaf_rn(n, -kLn2High, -x));
  float q = __fmaf_rn(kExp4, r, kExp3);
  q = __fmaf_rn(q, r, kExp2);
  q = __fmaf_rn(q, r, kExp1);
  q = __fmaf_rn(q, r, kExp0);
  const float p = __fmaf_rn(q, r * r, r) + 1.0f;
  const float e = __uint_as_float(__float_as_uint(p) + (__float_as_uint(shifted) << 23));
  const float d = 1.0f + e;
  // x / d: an estimate of 1 / d, one Newton step, and the quotient corrected by its remainder.
  float reciprocal;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(reciprocal) : "f"(d));
  reciprocal = __fmaf_rn(reciprocal, __fmaf_rn(-d, reciprocal, 1.0f), reciprocal);
  const float quotient = x * reciprocal;
  const float result = __fmaf_rn(reciprocal, __fmaf_rn(-d, quotient, x), quotient);
  return copysignf(result, x);  // of zeros
}

template <DType kType>
__device__ inline void swiglu_block(const Block<kType>& gate, const Block<kType>& up, float limit,
                                    float* v) {
  float g[16], u[16];
#pragma unroll
  for (int i = 0; i < 16; ++i) {
    g[i] = gate.value(i);
    u[i] = up.value(i);
  }
  if (gate.amax_bits() <= kFastGateBits<kType>) {
    if (limit < INFINITY) {
#pragma unroll
      for (int i = 0; i < 16; ++i) {
        g[i] = g[i] > limit ? limit : g[i];
        u[i] = u[i] > limit ? limit : u[i];
        u[i] = u[i] < -limit ? -limit : u[i];
      }
    }
#pragma unroll
    for (int i = 0; i < 16; ++i) v[i] = silu_fast(g[i]) * u[i];
  } else {
#pragma unroll
    for (int i = 0; i < 16; ++i) v[i] = swiglu(g[i], u[i], limit);
  }
}

/// swiglu() of row_math.h, bit for bit.
__device__ __forceinline__ float swiglu_one(float gate, float up, float limit) {
  if (!(fabsf(gate) <= kFastGate)) return swiglu(gate, up, limit);
  gate = gate > limit ? limit : gate;
  up = up > limit ? limit : up;
  up = up < -limit ? -limit : up;
  return silu_fast(gate) * up;
}

}  // namespace nvfp4::cuda
