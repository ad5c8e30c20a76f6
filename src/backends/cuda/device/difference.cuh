#pragma once

#include "backends/cuda/device/convert.cuh"
#include "backends/cuda/device/encode.cuh"
#include "quantizers/encode_block.h"

/// Computes u − q · c with the bits of hessian_cost(); q is the value of the encoder's code for x.
/// The addition of 1.5 · 2^22 times the binade of x · factor rounds to E2M1's grid. Ties round to
/// the even code, as in the encoder.
namespace nvfp4::cuda {

/// The constants of a block's global scale.
struct BlockGlobal {
  float divisor, inverse;

  BlockGlobal() = default;
  __device__ explicit BlockGlobal(float d) : divisor(d), inverse(1.0f / d) {}
  /// Same as element_factor().
  __device__ float factor(float scale) const { return fminf(1.0f / (scale * inverse), FLT_MAX); }
  /// Same as cost_magnitude(), with the sign of x. x must not be NaN.
  __device__ float cost_value(float x) const {
    return fminf(fmaxf(x * divisor, -kCostClamp), kCostClamp);
  }
};

inline constexpr float kOnGrid = 0x1.8p22f;  ///< for the binade of 1 and everything below

/// Returns kOnGrid times the binade of |v|, given 2^22 · v. A binade's boundary may be off by an
/// eighth: values that near round to the boundary on either grid.
__device__ inline float on_grid(float shifted) {
  std::uint32_t bits;  // one instruction if the constants are not both immediate
  asm("lop3.b32 %0, %1, 0x7F800000, %2, 0xEA;"
      : "=r"(bits)
      : "r"(__float_as_uint(shifted)), "r"(0x00400000u));
  return __uint_as_float(bits);
}

__device__ inline float difference(float x, const BlockGlobal& global, float c, float factor) {
  const float v = x * factor;
  // For infinite v the grid is NaN, which the maximum ignores.
  const float grid = fmaxf(on_grid(v * 0x1p22f), kOnGrid);
  const float q = fminf(fmaxf((v + grid) - grid, -6.0f), 6.0f);
  return __fmaf_rn(-q, c, global.cost_value(x));
}

/// Same as difference(), in units of x, with an error of at most 2^-22 x. `grid` is that of v = x ·
/// factor, at least kOnGrid. kClips: v may be 7 or more. For half of a scale, `unit` = c / divisor
/// and the factor may be those of the scale, with kOnGrid and `most` halved.
template <bool kClips>
__device__ inline float rough_difference(float x, float unit, float factor, float grid,
                                         float most) {
  float q = (x * factor + grid) - grid;
  if constexpr (kClips) q = fminf(fmaxf(q, -most), most);
  return __fmaf_rn(-q, unit, x);
}

}  // namespace nvfp4::cuda
