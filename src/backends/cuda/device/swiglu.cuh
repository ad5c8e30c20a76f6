#pragma once

#include "backends/cuda/device/encode.cuh"
#include "quantizers/row_math.h"

namespace nvfp4::cuda {

inline constexpr float kFastGate = 87.0f;  ///< e^±x is a normal number up to here
/// The bits of kFastGate.
template <DType kType>
inline constexpr std::uint32_t kFastGateBits = kType == DType::bf16  ? 0x42AEu
                                               : kType == DType::f16 ? 0x5570u
                                                                     : 0x42AE0000u;

/// Computes silu() of row_math.h for |x| <= kFastGate, with the same bits. No step can overflow, so
/// 2^n is one integer addition, and the reciprocal needs neither scaling nor checks.
__device__ inline float silu_fast(float x) {
  const float shifted = __fmaf_rn(x, -kLog2E, kRoundMagic);
  const float n = shifted - kRoundMagic;
  const float r = __fmaf_rn(n, -kLn2Low, __fmaf_rn(n, -kLn2High, -x));
  float q = __fmaf_rn(kExp5, r, kExp4);
  q = __fmaf_rn(q, r, kExp3);
  q = __fmaf_rn(q, r, kExp2);
  q = __fmaf_rn(q, r, kExp1);
  const float p = __fmaf_rn(q, r, 1.0f);
  const float e = __uint_as_float(__float_as_uint(p) + (__float_as_uint(shifted) << 23));
  return x * ordinary_reciprocal(1.0f + e);
}

/// Returns an estimate of silu(x) for |x| <= kFastGate, in half the instructions. The relative
/// difference from silu() is at most silu_error(|x|). Both have 2^-22 from the exponential and
/// three roundings. The estimate adds an ulp from the reciprocal, and |x| · 2^-23.5 from the
/// roundings of the exponent and of log2 e.
__device__ inline float silu_estimate(float x) {
  float e, r;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(e) : "f"(x * -kLog2E));
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(1.0f + e));
  return x * r;
}
__device__ inline float silu_error(float magnitude) {
  return __fmaf_rn(magnitude, 0x1p-23f, 0x1p-20f);
}

/// The addresses of a block of gate and of up in the aligned row at `start`. They are in halves or
/// in groups of at least 8 elements. Half h of gate is at first + h · half; up is `up` bytes after
/// it.
template <DType kType>
struct GateAndUp {
  static constexpr std::uint32_t kBytes = kElementBytes<kType>;
  const char* first;
  std::uint32_t half, up;

  __device__ GateAndUp(const char* start, std::int32_t block, std::int32_t blocks,
                       std::int32_t group) {
    const std::uint32_t k = static_cast<std::uint32_t>(block) * 16;
    if (group == 0) {
      first = start + k * kBytes;
      half = 8 * kBytes;
      up = static_cast<std::uint32_t>(blocks) * (16 * kBytes);
    } else {
      const std::uint32_t in_group = k & (static_cast<std::uint32_t>(group) - 1);
      first = start + (2 * k - in_group) * kBytes;
      half = (group == 8 ? 16 : 8) * kBytes;
      up = static_cast<std::uint32_t>(group) * kBytes;
    }
  }
  __device__ void load(Block<kType>& gate, Block<kType>& up_block) const {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      load_half(gate, h, first + h * half);
      load_half(up_block, h, first + h * half + up);
    }
  }
};

/// Clamps gate to at most limit, and up to [-limit, limit]. NaN remains.
template <int kCount>
__device__ inline void clamp_block(float limit, float (&gate)[kCount], float (&up)[kCount]) {
  if (limit < INFINITY) [[unlikely]] {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      gate[i] = gate[i] > limit ? limit : gate[i];
      up[i] = up[i] > limit ? limit : up[i];
      up[i] = up[i] < -limit ? -limit : up[i];
    }
  }
}

/// Computes swiglu() of row_math.h, with the same bits. `fast`: no gate exceeds kFastGate.
template <int kCount>
__device__ __forceinline__ void swiglu_values(float limit, bool fast, float (&g)[kCount],
                                              float (&u)[kCount], float* v) {
  if (fast) [[likely]] {
    clamp_block(limit, g, u);
#pragma unroll
    for (int i = 0; i < kCount; ++i) v[i] = silu_fast(g[i]) * u[i];
  } else {
    // The loop rotates the values through index 0, so that the slow code is small.
#pragma unroll
    for (int i = 0; i < kCount; ++i) v[i] = g[i];
#pragma unroll 1
    for (int n = 0; n < kCount; ++n) {
      const float first_up = u[0], done = swiglu(v[0], first_up, limit);
#pragma unroll
      for (int i = 0; i < kCount - 1; ++i) {
        v[i] = v[i + 1];
        u[i] = u[i + 1];
      }
      v[kCount - 1] = done;
      u[kCount - 1] = first_up;
    }
  }
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
  swiglu_values(limit, gate.amax_bits() <= kFastGateBits<kType>, g, u, v);
}

/// Replaces gate by an estimate of swiglu_block(). If no gate exceeds kFastGate, silu_error() of
/// the largest bounds the error of every element.
__device__ inline void swiglu_estimate(float limit, float (&gate)[16], float (&up)[16]) {
  clamp_block(limit, gate, up);
#pragma unroll
  for (int i = 0; i < 16; ++i) gate[i] = silu_estimate(gate[i]) * up[i];
}

/// Computes swiglu() of row_math.h, with the same bits.
__device__ __forceinline__ float swiglu_one(float gate, float up, float limit) {
  if (!(fabsf(gate) <= kFastGate)) return swiglu(gate, up, limit);
  gate = gate > limit ? limit : gate;
  up = up > limit ? limit : up;
  up = up < -limit ? -limit : up;
  return silu_fast(gate) * up;
}

}  // namespace nvfp4::cuda
