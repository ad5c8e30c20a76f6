#pragma once

#include <cstdint>

#include "nvfp4/format.h"

/// The arithmetic of mma.sync.m16n8k64 of kind mxf4nvf4, in integers (source: microsoft/MMA-Sim,
/// arXiv 2511.10909, measured there bit for bit on a GPU). Dot products of 16 codes are exact, and
/// so is their product with both scales. These four terms and the previous sum are aligned to the
/// largest exponent. Each term is truncated to 35 fraction bits. The terms are added, and the sum
/// is truncated to FP32. Host and device.
namespace nvfp4::cuda::omma {

/// Returns twice the value of an E2M1 code.
NVFP4_HD constexpr int twice_e2m1(unsigned code) {
  const int magnitude = static_cast<int>(code & 7);
  const int twice = magnitude < 4 ? magnitude : (2 | (magnitude & 1)) << (magnitude / 2 - 1);
  return code & 8 ? -twice : twice;
}

/// The number significand · 2^exponent. The exponent of 0 is -126; that of a subnormal number is
/// the smallest normal one.
struct Scaled {
  std::int64_t significand;
  int exponent;
};
/// Returns the magnitude of an E4M3 scale. The significand is in eighths.
NVFP4_HD constexpr Scaled scale_parts(std::uint8_t scale) {
  const int bits = scale & 0x7F, exponent = bits >> 3;
  if (bits == 0) return {0, -126};
  return exponent == 0 ? Scaled{bits, -6} : Scaled{8 + (bits & 7), exponent - 7};
}
/// Returns the parts of a finite FP32 number. The significand has 23 fraction bits.
NVFP4_HD constexpr Scaled sum_parts(std::uint32_t bits) {
  const int exponent = static_cast<int>(bits >> 23 & 0xFF);
  const std::int64_t fraction = bits & 0x7FFFFF;
  const std::int64_t magnitude = exponent == 0 ? fraction : fraction | 0x800000;
  return {bits >> 31 ? -magnitude : magnitude, exponent == 0 ? -126 : exponent - 127};
}

inline constexpr int kFractionBits = 35;

/// Converts `v` from units of 2^(exponent - point) to units of 2^(largest - 35), truncated.
NVFP4_HD constexpr std::int64_t aligned(std::int64_t v, int point, int exponent, int largest) {
  const int left = kFractionBits - point + exponent - largest;
  if (left >= 0) return v * (std::int64_t{1} << left);
  return left <= -63 ? 0 : v / (std::int64_t{1} << -left);
}

/// Returns the bits of v · 2^exponent as FP32, truncated. Overflow gives infinity.
NVFP4_HD constexpr std::uint32_t truncated(std::int64_t v, int exponent) {
  const std::uint32_t sign = v < 0 ? 0x80000000u : 0;
  auto magnitude = static_cast<std::uint64_t>(v < 0 ? -v : v);
  if (magnitude == 0) return 0;
  int top = 63;
  while (magnitude >> top == 0) --top;
  // Exponent of the unit in the last place.
  const int unit = top + exponent - 23 < -149 ? -149 : top + exponent - 23;
  const int right = unit - exponent;
  magnitude = right >= 64 ? 0 : right >= 0 ? magnitude >> right : magnitude << -right;
  if (magnitude < 0x800000) return sign | static_cast<std::uint32_t>(magnitude);  // subnormal
  if (unit + 23 > 127) return sign | 0x7F800000u;
  return sign | static_cast<std::uint32_t>(unit + 23 + 127) << 23 |
         (static_cast<std::uint32_t>(magnitude) & 0x7FFFFF);
}

/// Returns the bits of sum + Σ scale_a · scale_b · dot over four blocks. a and b hold 64 codes, the
/// first in the low bits. A NaN scale or sum gives NaN; an infinite sum stays infinite.
NVFP4_HD constexpr std::uint32_t add_product(std::uint32_t sum, const std::uint32_t (&a)[8],
                                             std::uint32_t a_scales, const std::uint32_t (&b)[8],
                                             std::uint32_t b_scales) {
  const std::uint32_t magnitude = sum & 0x7FFFFFFF;
  bool is_nan = magnitude > 0x7F800000u;
  std::int64_t terms[4] = {};
  int exponents[4] = {};
  const Scaled before = sum_parts(sum);
  int largest = before.exponent;
  for (int block = 0; block < 4; ++block) {
    const auto sa = static_cast<std::uint8_t>(a_scales >> 8 * block);
    const auto sb = static_cast<std::uint8_t>(b_scales >> 8 * block);
    is_nan = is_nan || (sa & 0x7F) == 0x7F || (sb & 0x7F) == 0x7F;
    int dot = 0;  // in quarters
    for (int i = 0; i < 16; ++i)
      dot += twice_e2m1(a[block * 2 + i / 8] >> 4 * (i % 8) & 15) *
             twice_e2m1(b[block * 2 + i / 8] >> 4 * (i % 8) & 15);
    const Scaled pa = scale_parts(sa), pb = scale_parts(sb);
    terms[block] = dot * pa.significand * pb.significand;
    exponents[block] = pa.exponent + pb.exponent;
    largest = exponents[block] > largest ? exponents[block] : largest;
  }
  if (is_nan) return 0x7FFFFFFF;
  if (magnitude == 0x7F800000u) return sum;
  constexpr int kQuarters = 2, kEighths = 3;
  std::int64_t all = aligned(before.significand, 23, before.exponent, largest);
  for (int block = 0; block < 4; ++block)
    all += aligned(terms[block], kQuarters + 2 * kEighths, exponents[block], largest);
  return truncated(all, largest - kFractionBits);
}

}  // namespace nvfp4::cuda::omma
