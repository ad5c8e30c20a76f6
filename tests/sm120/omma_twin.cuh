#pragma once

#include "selftest/omma_arithmetic.h"
#include "selftest/omma_fragments.h"

/// The instruction in software, for GPUs without it. Operands are in the same registers of the same
/// lanes; the arithmetic is that of omma_arithmetic.h.
namespace nvfp4::cuda::sm120 {

/// Not inlined, because ptxas would take minutes.
template <int kA, int kB>
__device__ __noinline__ float4 add_omma_twin(float4 d, uint4 a, uint2 b, std::uint32_t a_scales,
                                             std::uint32_t b_scales) {
  using namespace omma;
  const int lane = static_cast<int>(threadIdx.x) % 32, g = lane / 4, q = lane % 4;
  // The words, of eight codes each, of the rows and columns of this lane's sums.
  std::uint32_t rows[2][8], columns[2][8], row_scales[2], column_scales[2];
  const std::uint32_t of_a[kARegisters] = {a.x, a.y, a.z, a.w}, of_b[kBRegisters] = {b.x, b.y};
  for (int from = 0; from < 4; ++from) {
    for (int r = 0; r < kARegisters; ++r) {
      const Element e = a_element(4 * g + from, r, 0);
      rows[e.line / 8][e.k / 8] = __shfl_sync(~0u, of_a[r], 4 * g + from);
    }
    for (int c = 0; c < 2; ++c)
      for (int r = 0; r < kBRegisters; ++r) {
        const int other = 4 * (2 * q + c) + from;
        columns[c][b_element(other, r, 0).k / 8] = __shfl_sync(~0u, of_b[r], other);
      }
  }
  for (int i = 0; i < 2; ++i) {
    row_scales[i] = __shfl_sync(~0u, a_scales, a_scale_lane(g + 8 * i, kA));
    column_scales[i] = __shfl_sync(~0u, b_scales, b_scale_lane(2 * q + i, kB));
  }
  const auto add = [&](float sum, int r) {
    const Element e = d_element(lane, r);
    return __uint_as_float(add_product(__float_as_uint(sum), rows[e.line / 8],
                                       row_scales[e.line / 8], columns[e.k % 2],
                                       column_scales[e.k % 2]));
  };
  return {add(d.x, 0), add(d.y, 1), add(d.z, 2), add(d.w, 3)};
}

struct OmmaTwin {
  template <int kA = 0, int kB = 0>
  __device__ __forceinline__ static void multiply(float (&d)[4], const std::uint32_t (&a)[4],
                                                  std::uint32_t b0, std::uint32_t b1,
                                                  std::uint32_t a_scales, std::uint32_t b_scales) {
    const float4 sum = add_omma_twin<kA, kB>({d[0], d[1], d[2], d[3]}, {a[0], a[1], a[2], a[3]},
                                             {b0, b1}, a_scales, b_scales);
    d[0] = sum.x;
    d[1] = sum.y;
    d[2] = sum.z;
    d[3] = sum.w;
  }
};

}  // namespace nvfp4::cuda::sm120
