#pragma once

#include <cfloat>
#include <cstdint>

#include "backends/cuda/device/block.cuh"
#include "backends/cuda/device/convert.cuh"

/// Encodes blocks of 16 with the bits of quantizers/encode_block.h. The instruction count here
/// determines the speed of every quantizing kernel.
namespace nvfp4::cuda {

/// Returns min(max(a·b, 0), 1), rounded once. NaN gives 0.
__device__ inline float saturated_product(float a, float b) {
  float d;
  asm("mul.rn.sat.f32 %0, %1, %2;" : "=f"(d) : "f"(a), "f"(b));
  return d;
}

/// Returns 1 / d, correctly rounded, for 2^-126 <= d < 2^126. 1 / 0 gives NaN.
__device__ inline float ordinary_reciprocal(float d) {
  float r;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(d));
  return __fmaf_rn(r, __fmaf_rn(-d, r, 1.0f), r);
}

inline constexpr std::uint32_t kCodeBias = 0x4AFFFFFC;  ///< bits of 2^23 - 2
inline constexpr float kAbove = 0x1.999998p-1f;
/// Returns the E2M1 code of 8a plus kCodeBias, as the bits of a float; a = min(|x| · eighth, 1).
/// min(8a, 4) is added to 2^23 - 2. The sum has E2M1's steps: 1/2 below 2^23, where 8a < 2, and 1
/// above. The adder rounds to nearest even. The addition of almost 0.8 a changes the code by one,
/// and only if 8a > 5: kAbove · 0.625 < 1/2 < kAbove · (0.625 + 2^-24). Both minima use products
/// with x. If one depended on the other, the chain of dependent instructions would be longer.
__device__ inline std::uint32_t e2m1_biased(float x, float eighth, float quarter) {
  const float a = saturated_product(fabsf(x), eighth);
  const float to_4 = saturated_product(fabsf(x), quarter);
  return __float_as_uint(__fmaf_rn(a, kAbove, __fmaf_rn(to_4, 4.0f, 0x1p23f - 2.0f)));
}

/// Selects bytes of `a` (0 … 3) and `b` (4 … 7), the first in the lowest nibble of kBytes. Index +
/// 8 replicates the sign of the byte.
template <std::uint32_t kBytes>
__device__ inline std::uint32_t bytes_of(std::uint32_t a, std::uint32_t b) {
  std::uint32_t d;
  asm("prmt.b32 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "n"(kBytes));
  return d;
}

/// Returns the sign of element i in bit 4·i + 3. Other bits are undefined.
__device__ inline std::uint32_t sign_bits(const float* x) {
  const auto pair = [&](int i) {  // the highest bytes of two elements
    return bytes_of<0x73>(__float_as_uint(x[i]), __float_as_uint(x[i + 2]));
  };
  const std::uint32_t even = bytes_of<0xDC98>(pair(0), pair(4));
  const std::uint32_t odd = bytes_of<0xDC98>(pair(1), pair(5));
  return (even & 0x0F0F0F0Fu) | (odd & 0xF0F0F0F0u);
}
/// Returns the signs of eight 16-bit elements.
__device__ inline std::uint32_t sign_bits(const std::uint32_t* words) {
  const std::uint32_t low = bytes_of<0x7351>(words[0], words[1]);
  const std::uint32_t high = bytes_of<0x7351>(words[2], words[3]);
  return (bytes_of<0xDC98>(low, high) & 0x0F0F0F0Fu) | (bytes_of<0xFEBA>(low, high) & 0xF0F0F0F0u);
}

/// Returns the codes of eight elements times 8 · `eighth`, the first in the lowest nibble. No
/// element may be NaN. `signed_as` has the same elements, as floats or as words of two.
template <class Signed>
__device__ inline std::uint32_t encode8(const float* x, [[maybe_unused]] const Signed* signed_as,
                                        float eighth) {
#if NVFP4_NATIVE_FP4
  std::uint32_t word = 0;
#pragma unroll
  for (int i = 0; i < 8; i += 2) {
    std::uint32_t pair;
    asm("{ .reg .b8 c; cvt.rn.satfinite.e2m1x2.f32 c, %1, %2; mov.b32 %0, {c, 0, 0, 0}; }"
        : "=r"(pair)
        : "f"(x[i + 1] * (8.0f * eighth)), "f"(x[i] * (8.0f * eighth)));
    word |= pair << 4 * i;
  }
  return word;
#else
  const float quarter = 2.0f * eighth;
  std::uint32_t sum = 0;
#pragma unroll
  for (int i = 7; i >= 0; --i) sum = sum * 16 + e2m1_biased(x[i], eighth, quarter);
  return (sum - kCodeBias * 0x11111111u) | (sign_bits(signed_as) & 0x88888888u);
#endif
}

/// Returns the codes of 16 values. None may be NaN.
__device__ inline uint2 encode16(const float* x, float eighth) {
  return {encode8(x, x, eighth), encode8(x + 8, x + 8, eighth)};
}

/// Returns the codes of a loaded block without NaN. 16-bit types provide their signs in pairs.
template <DType kType>
__device__ inline uint2 encode_block(const Block<kType>& b, float eighth) {
  float v[16];
#pragma unroll
  for (int i = 0; i < 16; ++i) v[i] = b.value(i);
  if constexpr (kType == DType::f32) return encode16(v, eighth);
  return {encode8(v, b.words, eighth), encode8(v + 8, b.words + 4, eighth)};
}

/// The constants of a global scale for encoding. Always inlined: around a call ptxas would
/// serialize wgmma.
struct Encoder {
  float sixth = 0;
  float inverse = 0;      ///< 1 / divisor; 8 / divisor if `ordinary`
  bool ordinary = false;  ///< no operation approaches overflow or underflow

  Encoder() = default;
  __device__ __forceinline__ explicit Encoder(float divisor)
      : Encoder(divisor, divisor >= 0x1p-90f && divisor <= 0x1p90f) {}
  /// `is_ordinary` must be true only for an ordinary divisor.
  __device__ __forceinline__ Encoder(float divisor, bool is_ordinary)
      : sixth(divisor * kSixth), ordinary(is_ordinary) {
    inverse = ordinary ? 8.0f * ordinary_reciprocal(divisor) : 1.0f / divisor;
  }

  /// Returns the code of the block scale, as in scale_for().
  __device__ __forceinline__ std::uint32_t scale_code(float amax) const {
    return e4m3_code(fminf(amax * sixth, FLT_MAX));
  }

  /// Returns 1/8 of the elements' factor, see element_factor(). Requires `ordinary`. A scale of 0
  /// gives NaN, which the minimum ignores.
  __device__ __forceinline__ float eighth(std::uint32_t code) const {
    return fminf(ordinary_reciprocal(e4m3_value(code) * inverse), FLT_MAX / 8);
  }

  /// Returns the codes of 16 values with the block scale `code`. None may be NaN. The values are
  /// overwritten: a copy for the rare case would cost registers in every block.
  __device__ __forceinline__ uint2 encode(float (&v)[16], std::uint32_t code) const {
    float factor = 0.125f;
    if (ordinary)
      factor = eighth(code);
    else
      multiply(v, code);
    return encode16(v, factor);
  }

  /// Returns the codes of 16 values with the block scale `code`.
  __device__ __forceinline__ uint2 operator()(const float* x, std::uint32_t code,
                                              bool has_nan) const {
    float v[16];
#pragma unroll
    for (int i = 0; i < 16; ++i) v[i] = x[i];
    if (has_nan) replace_nans(v);
    return encode(v, code);
  }

  /// Returns the codes of a loaded block.
  template <DType kType>
  __device__ __forceinline__ uint2 operator()(const Block<kType>& b, std::uint32_t code) const {
    if (ordinary) return encode_block(b, eighth(code));
    float v[16];
#pragma unroll
    for (int i = 0; i < 16; ++i) v[i] = b.value(i);
    return (*this)(v, code, false);
  }

 private:
  /// Replaces NaN by infinity, whose code is +6.
  __device__ __forceinline__ static void replace_nans(float (&v)[16]) {
#pragma unroll
    for (int i = 0; i < 16; ++i) v[i] = isnan(v[i]) ? INFINITY : v[i];
  }
  /// Multiplies by the factor itself, because its eighth or its reciprocal may be subnormal.
  __device__ __forceinline__ void multiply(float (&v)[16], std::uint32_t code) const {
    const float factor = fminf(1.0f / (e4m3_value(code) * inverse), FLT_MAX);
#pragma unroll
    for (int i = 0; i < 16; ++i) v[i] = v[i] * factor;
    replace_nans(v);  // infinity times zero
  }
};

}  // namespace nvfp4::cuda
