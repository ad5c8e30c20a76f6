#pragma once

#include <bit>
#include <cstdint>

#include "backends/cuda/device/convert.cuh"
#include "backends/cuda/device/encode.cuh"

/// u − q · c, q the E2M1 value nearest to u / c, with the bits of hessian_cost() but without its
/// seven comparisons. A sum with 1.5 · 2^22 times the binade of u / c rounds to the grid that E2M1
/// has there; the quotient is made in the same FMA, so that it is rounded nowhere else.
namespace nvfp4::cuda {

/// The float below 1 / c: its exact product with a float u is above a threshold t where u > t · c,
/// and below it otherwise, also at the tie.
constexpr float float_below(float x) {
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(x) - 1);
}
constexpr bool decides_as_the_threshold(float c, float t) {
  const float above = std::bit_cast<float>(std::bit_cast<std::uint32_t>(t * c) + 1);
  const double reciprocal = float_below(1.0f / c);  // products of two floats are exact
  return double{t * c} * reciprocal<t&& double{above} * reciprocal> t;
}
constexpr bool all_decide_as_the_thresholds() {
  for (const float c : {1.0f, 1.125f, 1.25f, 1.375f, 1.5f, 1.625f, 1.75f, 1.875f})
    for (const float t : {0.25f, 0.75f, 1.25f, 1.75f, 2.5f, 3.5f, 5.0f})
      if (!decides_as_the_threshold(c, t)) return false;
  return true;
}
static_assert(all_decide_as_the_thresholds());  // other scales are these times powers of two

__device__ inline float reciprocal_below(float c) {
  return __uint_as_float(__float_as_uint(ordinary_reciprocal(c)) - 1);
}

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

/// `grid`: of u / c, at least kOnGrid. kClips: whether u / c may be 7 or more. For the half of a
/// scale, c and the reciprocal may be those of the scale, with kOnGrid and `most` halved.
template <bool kClips>
__device__ inline float difference(float u, float c, float reciprocal, float grid, float most) {
  float q = __fmaf_rn(u, reciprocal, grid) - grid;
  if constexpr (kClips) q = fminf(fmaxf(q, -most), most);
  return __fmaf_rn(-q, c, u);
}
__device__ inline float difference(float u, float c, float reciprocal) {
  return difference<true>(u, c, reciprocal, fmaxf(on_grid(u * (0x1p22f * reciprocal)), kOnGrid),
                          6.0f);
}

}  // namespace nvfp4::cuda
