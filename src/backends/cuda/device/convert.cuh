#pragma once

#include <cuda_fp16.h>

#include <cfloat>
#include <cstdint>

#include "backends/cuda/device/arch.cuh"
#include "nvfp4/format.h"

/// Conversions with the bits of nvfp4/format.h, in the instructions that are cheap on the target.
/// These files are compiled with -fmad=false: only what says fma is fused.
namespace nvfp4::cuda {

/// Nearest E4M3, saturating; x >= 0 or NaN. Source: PTX ISA, cvt.rn.satfinite.e4m3x2.f32.
__device__ inline std::uint8_t e4m3_bits(float x) {
  std::uint16_t pair;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(0.0f), "f"(x));
  return static_cast<std::uint8_t>(pair);
}

/// Of a scale that is not negative and not NaN. The bits, read as an FP32, are the value · 2^-120.
__device__ inline float e4m3_value(std::uint32_t bits) {
  return __uint_as_float(bits << 20) * 0x1p120f;
}

/// min(max(a·b + c, 0), 1), rounded once; NaN gives 0.
__device__ inline float saturated_fma(float a, float b, float c) {
  float d;
  asm("fma.rn.sat.f32 %0, %1, %2, %3;" : "=f"(d) : "f"(a), "f"(b), "f"(c));
  return d;
}

/// The E2M1 code of a plus kCodeBias, as the bits of a float. a >= 0 or NaN (code 0).
/// min(a, 4) is added to 2^23 - 2: the sum has steps of 1/2 below 2^23, where a < 2, and of 1
/// above, as E2M1 has, and the adder rounds to nearest even. What exceeds 4, halved, then adds one
/// or not.
inline constexpr std::uint32_t kCodeBias = 0x4AFFFFFC;  ///< bits of 2^23 - 2
__device__ inline std::uint32_t e2m1_biased(float a) {
  const float to_4 = saturated_fma(a, 0.25f, 0.0f);
  const float above = saturated_fma(a, 0.5f, -2.0f);
  return __float_as_uint(above + __fmaf_rn(to_4, 4.0f, 0x1p23f - 2.0f));
}

/// Codes of eight elements times `factor` > 0, the first in the lowest nibble. No NaN among them,
/// but for native targets.
__device__ inline std::uint32_t encode8(const float* x, float factor) {
#if NVFP4_NATIVE_FP4
  std::uint32_t word = 0;
#pragma unroll
  for (int i = 0; i < 8; i += 2) {
    std::uint32_t pair;
    asm("{ .reg .b8 c; cvt.rn.satfinite.e2m1x2.f32 c, %1, %2; mov.b32 %0, {c, 0, 0, 0}; }"
        : "=r"(pair)
        : "f"(x[i + 1] * factor), "f"(x[i] * factor));
    word |= pair << 4 * i;
  }
  return word;
#else
  std::uint32_t sum = 0;
#pragma unroll
  for (int i = 7; i >= 0; --i) sum = sum * 16 + e2m1_biased(fabsf(x[i]) * factor);
  constexpr std::uint32_t kBias = kCodeBias * 0x11111111u;
  const auto sign_bytes = [](float a, float b, float c, float d) {
    const std::uint32_t ab = __byte_perm(__float_as_uint(a), __float_as_uint(b), 0x0073);
    const std::uint32_t cd = __byte_perm(__float_as_uint(c), __float_as_uint(d), 0x0073);
    return __byte_perm(ab, cd, 0x5410) & 0x80808080u;
  };
  return (sum - kBias) | sign_bytes(x[0], x[2], x[4], x[6]) >> 4 |
         sign_bytes(x[1], x[3], x[5], x[7]);
#endif
}

/// What the elements are multiplied by, from the code of the block scale.
__device__ inline float factor_of(std::uint32_t code, float inverse_divisor) {
  return fminf(1.0f / (e4m3_value(code) * inverse_divisor), FLT_MAX);
}

/// Codes of 16 elements, NaN or not.
__device__ inline uint2 encode16(const float* x, float factor, [[maybe_unused]] bool has_nan) {
#if !NVFP4_NATIVE_FP4
  if (has_nan) {
    uint2 codes = {0, 0};
    for (int i = 0; i < 8; ++i) {
      codes.x |= std::uint32_t{E2M1::from_float(x[i] * factor).bits} << 4 * i;
      codes.y |= std::uint32_t{E2M1::from_float(x[i + 8] * factor).bits} << 4 * i;
    }
    return codes;
  }
#endif
  return {encode8(x, factor), encode8(x + 8, factor)};
}

/// As FP32, to be multiplied by 2^126: bit 31 and bits 24..22 of the nibble i of `codes`.
__device__ inline float e2m1_scaled(std::uint32_t codes, int i) {
  const std::uint32_t sign = codes << (28 - 4 * i) & 0x80000000u;
  const std::uint32_t magnitude = i < 6 ? codes << (22 - 4 * i) : codes >> (4 * i - 22);
  return __uint_as_float(sign | (magnitude & 0x01C00000u));
}

}  // namespace nvfp4::cuda
