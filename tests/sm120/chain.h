#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdlib>

/// Returns the sums of NVFP4 by NVFP4 on tensor cores that multiply FP4, chunk by chunk of 64
/// columns. Independent of omma_arithmetic.h, which the twin of the kernels uses.
namespace nvfp4::test {

/// Codes of 64 columns with their four scales.
struct ChainChunk {
  std::uint8_t codes[64];
  std::uint8_t scales[4];
};

/// Integers alone: a term is magnitude · 2^(exponent - point), and `exponent` what terms are
/// aligned by.
inline float chain_add(float sum, const ChainChunk& a, const ChainChunk& b) {
  constexpr int kHalves[] = {0, 1, 2, 3, 4, 6, 8, 12};
  constexpr int kBits = 35, kZeroExponent = -126;
  struct Term {
    bool negative;
    std::uint64_t magnitude;
    int exponent, point;
  };
  Term terms[5];
  for (int j = 0; j < 4; ++j) {
    int dot = 0;
    for (int i = 16 * j; i < 16 * j + 16; ++i) {
      const int product = kHalves[a.codes[i] & 7] * kHalves[b.codes[i] & 7];
      dot += (a.codes[i] ^ b.codes[i]) & 8 ? -product : product;
    }
    std::uint64_t magnitude = static_cast<std::uint64_t>(std::abs(dot));
    int exponent = 0;
    for (const std::uint8_t scale : {a.scales[j], b.scales[j]}) {
      const int field = scale >> 3 & 15, fraction = scale & 7;
      if (field == 15 && fraction == 7) return std::bit_cast<float>(0x7FFFFFFFu);
      magnitude *= static_cast<std::uint64_t>(field == 0 ? fraction : 8 + fraction);
      exponent += field > 0 ? field - 7 : fraction > 0 ? -6 : kZeroExponent;
    }
    terms[j] = {dot < 0, magnitude, exponent, 2 + 3 + 3};
  }
  if (std::isnan(sum)) return std::bit_cast<float>(0x7FFFFFFFu);
  if (std::isinf(sum)) return sum;
  int exponent = 0;
  std::frexp(sum, &exponent);
  exponent = sum == 0 ? kZeroExponent : std::max(exponent - 1, kZeroExponent);
  terms[4] = {std::signbit(sum),
              static_cast<std::uint64_t>(
                  sum == 0 ? 0 : std::ldexp(static_cast<double>(std::fabs(sum)), 23 - exponent)),
              exponent, 23};
  int largest = terms[0].exponent;
  for (const Term& t : terms) largest = std::max(largest, t.exponent);
  std::int64_t all = 0;
  for (const Term& t : terms) {
    const int left = kBits - t.point - (largest - t.exponent);
    const std::uint64_t cut = left >= 0    ? t.magnitude << left
                              : left > -64 ? t.magnitude >> -left
                                           : 0;
    all += t.negative ? -static_cast<std::int64_t>(cut) : static_cast<std::int64_t>(cut);
  }
  std::int64_t magnitude = std::abs(all);
  int unit = largest - kBits;
  while (magnitude >= std::int64_t{1} << 24 || (magnitude > 0 && unit < -149)) {
    magnitude >>= 1;
    ++unit;
  }
  const double value = std::ldexp(static_cast<double>(magnitude), unit);
  const double limited = value > 3.4028234663852886e38 ? INFINITY : value;
  return static_cast<float>(all < 0 ? -limited : limited);
}

}  // namespace nvfp4::test
