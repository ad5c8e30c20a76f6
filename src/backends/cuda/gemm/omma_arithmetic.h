#pragma once

#include <cstdint>

#include "nvfp4/format.h"

/// What mma.sync.m16n8k64 of kind mxf4nvf4 adds to a sum, in integers (source: microsoft/MMA-Sim,
/// arXiv 2511.10909: measured bit for bit on a GPU; not by us): the dots of 16 codes are exact,
/// times the significands of both scales; these four and the sum before are aligned to the largest
/// of their exponents, each is truncated at 35 bits behind the point, all are added, and the sum is
/// truncated to FP32. Host and device.
namespace nvfp4::cuda::omma {

/// Twice an E2M1.
NVFP4_HD constexpr int twice_e2m1(unsigned code) {
  const int magnitude = static_cast<int>(code & 7);
  const int twice = magnitude < 4 ? magnitude : (2 | (magnitude & 1)) << (magnitude / 2 - 1);
  return code & 8 ? -twice : twice;
}

/// significand · 2^exponent; of 0 the exponent is -126, of a subnormal number the least one.
struct Scaled {
  std::int64_t significand;
  int exponent;
};
/// An E4M3 without its sign: the significand is in eighths.
NVFP4_HD constexpr Scaled scale_parts(std::uint8_t scale) {
  const int bits = scale & 0x7F, exponent = bits >> 3;
  if (bits == 0) return {0, -126};
  return exponent == 0 ? Scaled{bits, -6} : Scaled{8 + (bits & 7), exponent - 7};
}
/// A finite FP32: the significand has 23 bits behind the point.
NVFP4_HD constexpr Scaled sum_parts(std::uint32_t bits) {
  const int exponent = static_cast<int>(bits >> 23 & 0xFF);
  const std::int64_t fraction = bits & 0x7FFFFF;
  const std::int64_t magnitude = exponent == 0 ? fraction : fraction | 0x800000;
  return {bits >> 31 ? -magnitude : magnitude, exponent == 0 ? -126 : exponent - 127};
}

inline constexpr int kFractionBits = 35;

/// `v`, in units of 2^(exponent - point), in those of 2^(largest - 35), towards zero.
NVFP4_HD constexpr std::int64_t aligned(std::int64_t v, int point, int exponent, int largest) {
  const int left = kFractionBits - point + exponent - largest;
  if (left >= 0) return v * (std::int64_t{1} << left);
  return left <= -63 ? 0 : v / (std::int64_t{1} << -left);
}

/// v · 2^exponent as FP32, towards zero; past the largest number infinity.
NVFP4_HD constexpr std::uint32_t truncated(std::int64_t v, int exponent) {
  const std::uint32_t sign = v < 0 ? 0x80000000u : 0;
  auto magnitude = static_cast<std::uint64_t>(v < 0 ? -v : v);
  if (magnitude == 0) return 0;
  int top = 63;
  while (magnitude >> top == 0) --top;
  // The unit of the last place.
  const int unit = top + exponent - 23 < -149 ? -149 : top + exponent - 23;
  const int right = unit - exponent;
  magnitude = right >= 64 ? 0 : right >= 0 ? magnitude >> right : magnitude << -right;
  if (magnitude < 0x800000) return sign | static_cast<std::uint32_t>(magnitude);  // subnormal
  if (unit + 23 > 127) return sign | 0x7F800000u;
  return sign | static_cast<std::uint32_t>(unit + 23 + 127) << 23 |
         (static_cast<std::uint32_t>(magnitude) & 0x7FFFFF);
}

/// The bits of sum + Σ scale_a · scale_b · dot of each of four blocks: codes, 64 nibbles of A and
/// B, the first in the low bits. A scale that is NaN, or a sum, gives NaN; an infinite sum stays.
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
