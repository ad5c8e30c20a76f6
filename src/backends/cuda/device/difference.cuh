#pragma once

#include "backends/cuda/device/convert.cuh"
#include "backends/cuda/device/encode.cuh"
#include "quantizers/encode_block.h"

/// u − q · c, q the value of the code that the encoder gives x, with the bits of hessian_cost(). A
/// sum with 1.5 · 2^22 times the binade of x · factor rounds to the grid that E2M1 has there, and
/// at a tie, as the encoder does, to the even code.
namespace nvfp4::cuda {

/// What a block needs of its global scale.
struct BlockGlobal {
  float divisor, inverse;

  BlockGlobal() = default;
  __device__ explicit BlockGlobal(float d) : divisor(d), inverse(1.0f / d) {}
  /// element_factor()
  __device__ float factor(float scale) const { return fminf(1.0f / (scale * inverse), FLT_MAX); }
  /// cost_magnitude() with the sign of x, which is not NaN.
  __device__ float cost_value(float x) const {
    return fminf(fmaxf(x * divisor, -kCostClamp), kCostClamp);
  }
};

inline constexpr float kOnGrid = 0x1.8p22f;  ///< of the binade 1, and of all that is below it

/// kOnGrid times the binade of |v|, of 2^22 · v. A boundary may be an eighth off: what lies as near
/// to one rounds to it on either grid.
__device__ inline float on_grid(float shifted) {
  std::uint32_t bits;  // one instruction, if the constants are not both immediate
  asm("lop3.b32 %0, %1, 0x7F800000, %2, 0xEA;"
      : "=r"(bits)
      : "r"(__float_as_uint(shifted)), "r"(0x00400000u));
  return __uint_as_float(bits);
}

__device__ inline float difference(float x, const BlockGlobal& global, float c, float factor) {
  const float v = x * factor;
  // Of an infinite v the grid is a NaN, which the maximum ignores.
  const float grid = fmaxf(on_grid(v * 0x1p22f), kOnGrid);
  const float q = fminf(fmaxf((v + grid) - grid, -6.0f), 6.0f);
  return __fmaf_rn(-q, c, global.cost_value(x));
}

/// The same in units of x, but for 2^-22 of x; `grid`: of v = x · factor, at least kOnGrid. kClips:
/// whether v may be 7 or more. For the half of a scale, `unit` = c / divisor and the factor may be
/// those of the scale, with kOnGrid and `most` halved.
template <bool kClips>
__device__ inline float rough_difference(float x, float unit, float factor, float grid,
                                         float most) {
  float q = (x * factor + grid) - grid;
  if constexpr (kClips) q = fminf(fmaxf(q, -most), most);
  return __fmaf_rn(-q, unit, x);
}

}  // namespace nvfp4::cuda
