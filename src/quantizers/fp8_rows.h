#pragma once

#include "nvfp4/format.h"
#include "nvfp4/host_device.h"

/// Rows of E4M3 with an FP32 factor each: the operands of GEMMs with Arithmetic::fp8.
namespace nvfp4 {

/// Returns the factor of a row of E4M3: the least power of two, but at least 2^-118, by which 448
/// reaches `amax` >= 0. 0 has the factor 1, an infinity or NaN has NaN. All divisions by it are
/// exact.
NVFP4_HD constexpr float fp8_row_factor(float amax) {
  if (float_bits(amax) >= 0x7F800000u) return bits_float(0x7FC00000u);
  if (amax == 0) return 1;
  // 448 = 1.75 · 2^8. The sum reaches the next exponent above a mantissa of 1.75.
  const std::uint32_t exponent = (float_bits(amax) + 0x1FFFFFu) >> 23;
  return bits_float(((exponent < 17 ? 17 : exponent) - 8) << 23);
}

/// Returns 1 / factor, exactly.
NVFP4_HD constexpr float fp8_row_inverse(float factor) {
  return factor == factor ? bits_float((254u << 23) - float_bits(factor)) : factor;
}

/// Returns the code of an element of a row. Elements of a row with the factor NaN have 0x7F.
NVFP4_HD constexpr E4M3 fp8_code(float x, float inverse) { return E4M3::from_float(x * inverse); }

static_assert(fp8_row_factor(448.0f) == 1 && fp8_row_factor(449.0f) == 2);
static_assert(fp8_row_factor(0x1p-149f) == 0x1p-118f && fp8_row_inverse(0x1p-118f) == 0x1p118f);

}  // namespace nvfp4
