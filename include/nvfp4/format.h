#pragma once

#include <cstdint>

#include "nvfp4/host_device.h"

/// The number formats. Every conversion rounds to nearest, ties to even, and saturates. The results
/// equal those of the GPU instructions (PTX ISA, cvt.rn.satfinite), so all backends give the same
/// bits. The code needs IEEE arithmetic: no -ffast-math, no flush-to-zero.
namespace nvfp4 {

/// Size of a block: the consecutive elements along K that share one E4M3 scale.
inline constexpr int kBlock = 16;

/// Returns the bits of an FP32 value.
NVFP4_HD constexpr std::uint32_t float_bits(float x) {
  return __builtin_bit_cast(std::uint32_t, x);
}
/// Returns the FP32 value with these bits.
NVFP4_HD constexpr float bits_float(std::uint32_t u) { return __builtin_bit_cast(float, u); }

/// A 4-bit float: ±{0, 0.5, 1, 1.5, 2, 3, 4, 6} in the low four bits, the sign in bit 3. It has no
/// infinity and no NaN.
/// Source: OCP Microscaling Formats (MX) Specification v1.0, FP4; PTX cvt.rn.satfinite.e2m1x2.f32.
struct E2M1 {
  static constexpr float kMax = 6.0f;
  std::uint8_t bits;

  /// Rounds `x`. Values beyond ±6 and infinities saturate to ±6, and -0 keeps its sign. A NaN of
  /// any sign gives +6 (0x7).
  NVFP4_HD static constexpr E2M1 from_float(float x) {
    const float a = x < 0 ? -x : x;
    if (!(a >= 0)) return {0x7};
    const int code = (a > 0.25f) + (a >= 0.75f) + (a > 1.25f) + (a >= 1.75f) + (a > 2.5f) +
                     (a >= 3.5f) + (a > 5.0f);
    return {static_cast<std::uint8_t>(float_bits(x) >> 31 << 3 | static_cast<std::uint32_t>(code))};
  }
  NVFP4_HD constexpr float to_float() const {
    const std::uint32_t u = bits & 7u;
    // The codes of 1, 1.5, 2, 3, 4 and 6 are normal with one mantissa bit; 0 and 0.5 are not
    // normal.
    const float magnitude = u < 2 ? 0.5f * static_cast<float>(u) : bits_float((u + 252) << 22);
    return bits & 8 ? -magnitude : magnitude;
  }
};

/// An 8-bit float: sign, 4 exponent bits (bias 7), 3 mantissa bits. The largest value is 448, the
/// smallest positive one 2^-9, and 0x7F is NaN. A block scale (UE4M3) never has the sign set.
/// Source: OCP 8-bit Floating Point Specification v1.0; PTX cvt.rn.satfinite.e4m3x2.f32.
struct E4M3 {
  static constexpr float kMax = 448.0f;
  static constexpr std::uint8_t kMaxBits = 0x7E;
  static constexpr std::uint8_t kNaN = 0x7F;
  std::uint8_t bits;

  /// Rounds `x`. Values beyond ±448 and infinities saturate to ±448. A NaN of any sign gives 0x7F.
  NVFP4_HD static constexpr E4M3 from_float(float x) {
    const std::uint32_t sign = float_bits(x) >> 31 << 7;
    const float a = x < 0 ? -x : x;
    if (!(a >= 0)) return {kNaN};
    if (a < 0x1p-6f) {  // A subnormal: the FP32 adder rounds to a multiple of 2^-9.
      const std::uint32_t magnitude = float_bits((sign ? -x : x) * 0x1p9f + 0x1p23f) & 0xFF;
      return {static_cast<std::uint8_t>(sign | magnitude)};
    }
    const std::uint32_t u = float_bits(a < kMax ? a : kMax);
    const std::uint32_t magnitude = ((u + 0x7FFFF + (u >> 20 & 1)) >> 20) - (120u << 3);
    return {static_cast<std::uint8_t>(sign | magnitude)};
  }
  NVFP4_HD constexpr float to_float() const {
    const std::uint32_t u = bits & 0x7Fu;
    if (u == kNaN) return bits_float(bits & 0x80 ? 0xFFC00000u : 0x7FC00000u);
    const float magnitude =
        u < 8 ? static_cast<float>(u) * 0x1p-9f : bits_float((u << 20) + (120u << 23));
    return bits & 0x80 ? -magnitude : magnitude;
  }
};

/// The upper half of an FP32. Overflow rounds to infinity. NaN gives 0x7FFF, as in cvt.rn.bf16.f32.
struct BF16 {
  std::uint16_t bits;

  /// Rounds `x` to nearest, ties to even.
  NVFP4_HD static constexpr BF16 from_float(float x) {
    const std::uint32_t u = float_bits(x);
    if ((u & 0x7FFFFFFFu) > 0x7F800000u) return {0x7FFF};
    return {static_cast<std::uint16_t>((u + 0x7FFF + (u >> 16 & 1)) >> 16)};
  }
  NVFP4_HD constexpr float to_float() const {
    return bits_float(static_cast<std::uint32_t>(bits) << 16);
  }
};

/// An IEEE binary16. Overflow rounds to infinity. NaN gives 0x7FFF, as in cvt.rn.f16.f32.
struct FP16 {
  std::uint16_t bits;

  /// Rounds `x` to nearest, ties to even.
  NVFP4_HD static constexpr FP16 from_float(float x) {
    const std::uint32_t sign = float_bits(x) >> 16 & 0x8000u;
    const std::uint32_t u = float_bits(x) & 0x7FFFFFFFu;
    if (u > 0x7F800000u) return {0x7FFF};
    if (u >= 0x477FF000u) return {static_cast<std::uint16_t>(sign | 0x7C00u)};  // >= 65520
    if (u < 0x38800000u) {  // Below 2^-14 the FP32 adder rounds to a multiple of 2^-24.
      const std::uint32_t m = float_bits(bits_float(u) + 0.5f) - float_bits(0.5f);
      return {static_cast<std::uint16_t>(sign | m)};
    }
    const std::uint32_t m = (u + 0xFFF + (u >> 13 & 1) - (112u << 23)) >> 13;
    return {static_cast<std::uint16_t>(sign | m)};
  }
  NVFP4_HD constexpr float to_float() const {
    const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x8000u) << 16;
    const std::uint32_t u = bits & 0x7FFFu;
    if (u >= 0x7C00u) return bits_float(sign | 0x7F800000u | (u & 0x3FFu) << 13);
    // A subnormal has no FP32 exponent to shift into: the integer is scaled instead.
    const float magnitude =
        u < 0x400u ? static_cast<float>(u) * 0x1p-24f : bits_float((u << 13) + (112u << 23));
    return bits_float(float_bits(magnitude) | sign);
  }
};

static_assert(E2M1::from_float(2.5f).to_float() == 2.0f, "a tie goes to the even code");
static_assert(E4M3::from_float(464.0f).to_float() == 448.0f, "saturates");

}  // namespace nvfp4
