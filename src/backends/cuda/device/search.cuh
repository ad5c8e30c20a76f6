#pragma once

#include "backends/cuda/device/convert.cuh"
#include "quantizers/encode_block.h"

/// Searches the scale of a thread's block, with the result of choose_scale(). The cost is measured
/// on u, |x| in units of the global scale.
namespace nvfp4::cuda {

inline constexpr int kWindow = 9;  ///< an octave of scales plus one

/// Returns the scale with the smallest cost among `highest` … 1, the lowest of equal ones. The
/// search stops when clipping of the largest element alone costs more than the best scale. Lower
/// scales clip more.
template <int kBlockSize>
__device__ __noinline__ std::uint32_t search_exactly(const float* u, const float* weights,
                                                     float amax, std::uint32_t highest) {
  std::uint32_t best = highest;
  float best_cost = INFINITY;
  int top = 0;
  if (weights)
    for (int i = 0; i < kBlockSize; ++i)
      if (u[i] == amax) top = i;
  for (std::uint32_t code = highest; code >= 1; --code) {
    const float scale = e4m3_value(code);
    const float clipped = amax - 6.0f * scale;
    const float loss = weights ? weights[top] * clipped * clipped : clipped * clipped;
    if (clipped > 0 && loss > best_cost) break;
    const float cost = block_cost(u, weights, kBlockSize, scale);
    if (cost <= best_cost) {
      best_cost = cost;
      best = code;
    }
  }
  return best;
}

/// Returns the first code of the search: E4M3(amax/6) + 7. The comment of mse-inl.h has the proof.
__device__ inline std::uint32_t highest_code(float amax) {
  return min(126u, max(8u, std::uint32_t{e4m3_bits(amax * kSixth)}) + 7);
}

/// Searches exactly on a copy, so that only rare blocks keep u in memory.
template <int kBlockSize>
__device__ inline std::uint32_t search_copy(const float* u, const float* weights, float amax) {
  float copy[kBlockSize];
#pragma unroll
  for (int i = 0; i < kBlockSize; ++i) copy[i] = u[i];
  return search_exactly<kBlockSize>(copy, weights, amax, highest_code(amax));
}

/// Returns the scale with the smallest squared error. Fast arithmetic measures an octave of
/// candidates, and lower ones that clipping does not exclude. Its error is below 1e-5 of a scale.
/// About one block in ten thousand remains undecided and is searched exactly.
template <int kBlockSize>
__device__ inline std::uint32_t search_mse(const float* u, float amax) {
  if (amax == 0) return 1;
  // top: the largest code with 3.5 c < amax. Above it, half the scale costs no more.
  std::uint32_t top = min(126u, std::uint32_t{e4m3_bits(fminf(amax * (1.0f / 3.5f), 448.0f))});
  if (3.5f * e4m3_value(top) >= amax) --top;
  const bool above = top < 126 && 3.5f * e4m3_value(top + 1) < amax;
  if (top < 24 || above) return search_copy<kBlockSize>(u, nullptr, amax);
  const float margin = 2e-5f * e4m3_value(top);
  float best = INFINITY, second = INFINITY, bound = INFINITY;
  std::uint32_t best_code = top;
#pragma unroll 1
  for (int i = 0;; ++i) {
    const float scale = e4m3_value(top - i);
    if (i >= kWindow) {
      bound = best * 1.00002f + margin * (2 * __fsqrt_rn(best) + margin);
      const float clipped = amax - 6.0f * scale;
      if (clipped > 0 && clipped * clipped > bound) break;
    }
    const float reciprocal = __frcp_rn(scale);
    float sum[2] = {0, 0};
#pragma unroll
    for (int j = 0; j < kBlockSize; ++j) {
      const float v = u[j] * reciprocal;
      // The addition of 2^22 times the binade of v (at least 1) rounds to E2M1's grid.
      const float binade = fmaxf(__uint_as_float(__float_as_uint(v) & 0x7F800000u), 1.0f);
      const float shifted = __fmaf_rn(binade, 0x1p22f, v);
      const float q = fminf(__fmaf_rn(binade, -0x1p22f, shifted), 6.0f);
      const float d = v - q;
      sum[j % 2] = __fmaf_rn(d, d, sum[j % 2]);
    }
    const float cost = (sum[0] + sum[1]) * (scale * scale);
    second = fminf(second, fmaxf(cost, best));
    if (cost < best) {
      best = cost;
      best_code = top - i;
    }
    if (top - i == 1) break;
  }
  return second > bound ? best_code : search_copy<kBlockSize>(u, nullptr, amax);
}

__device__ inline std::uint32_t choose_four_over_six(const float* u, int block, float amax,
                                                     float divisor) {
  const E4M3 six{e4m3_bits(fminf(amax * (divisor * kSixth), FLT_MAX))};
  const E4M3 four{e4m3_bits(fminf(amax * (divisor * 0.25f), FLT_MAX))};
  return block_cost(u, nullptr, block, e4m3_value(four.bits)) <
                 block_cost(u, nullptr, block, e4m3_value(six.bits))
             ? four.bits
             : six.bits;
}

/// Returns the code of the block scale. `amax` is that of x, ignoring NaN. `weights`: for mse only,
/// or null.
template <int kBlockSize>
__device__ inline std::uint32_t choose_code(Quantizer quantizer, const float* x, float amax,
                                            float divisor, const float* weights) {
  if (quantizer == Quantizer::max) return e4m3_bits(fminf(amax * (divisor * kSixth), FLT_MAX));
  float u[kBlockSize];
#pragma unroll
  for (int i = 0; i < kBlockSize; ++i) u[i] = fminf(fmaxf(fabsf(x[i]) * divisor, 0.0f), kCostClamp);
  if (quantizer == Quantizer::four_over_six)
    return choose_four_over_six(u, kBlockSize, amax, divisor);
  const float largest = fminf(amax * divisor, kCostClamp);
  if (weights == nullptr) return search_mse<kBlockSize>(u, largest);
  return largest == 0 ? 1 : search_copy<kBlockSize>(u, weights, largest);
}

}  // namespace nvfp4::cuda
