#pragma once

#include <cstdint>

#include "nvfp4/format.h"

/// The definition of the operations that are fused with quantization. They are IEEE single
/// operations in a fixed order, with fused multiply-add only where `fused` is called.
/// docs/numerics.md has them in words.
namespace nvfp4 {

/// Returns a·b + c, rounded once.
NVFP4_HD inline float fused(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
NVFP4_HD inline float root(float x) { return __builtin_sqrtf(x); }

inline constexpr float kExpLowest = -104.0f,
                       kExpHighest = 89.0f;  ///< beyond these the result is 0 or infinity
inline constexpr float kLog2E = 0x1.715476p+0f;
inline constexpr float kLn2High = 0x1.62e4p-1f, kLn2Low = 0x1.7f7d1cp-20f;
/// The coefficients of (e^r - 1) / r in |r| <= ln 2 / 2, lowest power first. They minimize the
/// error of 1 + r · polynomial in units of the last place; own fit.
inline constexpr float kExp1 = 0x1.ffffeep-1f, kExp2 = 0x1.fffdc2p-2f, kExp3 = 0x1.555d42p-3f,
                       kExp4 = 0x1.573b7cp-5f, kExp5 = 0x1.0ebc5ap-7f;
inline constexpr float kRoundMagic = 0x1.8p23f;  ///< added and subtracted, it rounds to an integer

/// Returns e^x with an error of at most 2 ulp. Underflow is gradual, NaN stays NaN.
NVFP4_HD inline float exponential(float x) {
  x = x < kExpLowest ? kExpLowest : x;
  x = x > kExpHighest ? kExpHighest : x;
  const float shifted = fused(x, kLog2E, kRoundMagic);
  const float n = shifted - kRoundMagic;
  const float r = fused(n, -kLn2Low, fused(n, -kLn2High, x));
  const float q = fused(fused(fused(fused(kExp5, r, kExp4), r, kExp3), r, kExp2), r, kExp1);
  const float p = fused(q, r, 1.0f);
  // 2^n is applied in two steps so that each is a normal number. The first product is exact.
  const auto exponent =
      static_cast<std::int32_t>(float_bits(shifted)) - static_cast<std::int32_t>(0x4B400000);
  const std::int32_t half = exponent >> 1;
  return p * bits_float(static_cast<std::uint32_t>(half + 127) << 23) *
         bits_float(static_cast<std::uint32_t>(exponent - half + 127) << 23);
}

NVFP4_HD inline float silu(float x) { return x * (1.0f / (1.0f + exponential(-x))); }

/// Returns silu(gate) · up of the clamped arguments. NaN passes the clamp.
NVFP4_HD inline float swiglu(float gate, float up, float limit) {
  gate = gate > limit ? limit : gate;
  up = up > limit ? limit : up;
  up = up < -limit ? -limit : up;
  return silu(gate) * up;
}

/// Returns the squares of four neighbors, added one after the other.
NVFP4_HD inline float four_squares(float a, float b, float c, float d) {
  return fused(d, d, fused(c, c, fused(b, b, a * a)));
}

/// Returns 1 / rms from the sum of squares. The sum is a balanced binary tree over the row's
/// four_squares(), as if the row were padded with zeros to a power of two. Neighbors are added in
/// pairs, then the sums of pairs, and so on. Any machine can build this tree in any order.
NVFP4_HD inline float reciprocal_rms(float sum_of_squares, std::int64_t n, float eps) {
  return 1.0f / root(sum_of_squares / static_cast<float>(n) + eps);
}

/// Returns x · weight · rstd. The weight comes first. The largest magnitude of a row times `rstd`
/// is then that of the normalized row, so one pass finds both.
NVFP4_HD inline float normalized(float x, float weight, float rstd) { return x * weight * rstd; }

inline constexpr int kMostStreams = 4;

/// Returns Σ mix[h] · x[h], in the order of h.
NVFP4_HD inline float mixed(const float* mix, const float* x, int streams) {
  float sum = mix[0] * x[0];
  for (int h = 1; h < streams; ++h) sum = sum + mix[h] * x[h];
  return sum;
}

/// Number of sums of a Gram matrix: row t is added to sum t mod 8, then a balanced tree adds them.
inline constexpr int kGramSums = 8;

}  // namespace nvfp4
