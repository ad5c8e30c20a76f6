#pragma once

#include <cuda_fp16.h>

#include <cstdint>

#include "backends/cuda/device/arch.cuh"
#include "nvfp4/format.h"

/// Converts with the bits of nvfp4/format.h, by the instructions that are fast on the target. These
/// files are compiled with -fmad=false, so only explicit fma operations are fused.
namespace nvfp4::cuda {

/// Returns the nearest E4M3, saturating; x >= 0 or NaN. Source: PTX ISA,
/// cvt.rn.satfinite.e4m3x2.f32, which exists since sm_89.
__device__ inline std::uint32_t e4m3_code(float x) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 890
  return E4M3::from_float(x).bits;
#else
  std::uint32_t bits;
  asm("{ .reg .b16 p; cvt.rn.satfinite.e4m3x2.f32 p, %1, %2; mov.b32 %0, {p, 0}; }"
      : "=r"(bits)
      : "f"(0.0f), "f"(x));
  return bits;
#endif
}
__device__ inline std::uint8_t e4m3_bits(float x) {
  return static_cast<std::uint8_t>(e4m3_code(x));
}

/// Returns the value of a scale, which must not be negative or NaN. The shifted bits, read as FP32,
/// are the value · 2^-120.
__device__ inline float e4m3_value(std::uint32_t bits) {
  return __uint_as_float(bits << 20) * 0x1p120f;
}

/// Returns element i of `codes` times 2^-126, as FP32. It uses bit 31 and bits 24..22.
__device__ inline float e2m1_scaled(std::uint32_t codes, int i) {
  const std::uint32_t sign = codes << (28 - 4 * i) & 0x80000000u;
  const std::uint32_t magnitude = i < 6 ? codes << (22 - 4 * i) : codes >> (4 * i - 22);
  return __uint_as_float(sign | (magnitude & 0x01C00000u));
}

}  // namespace nvfp4::cuda
