#pragma once

#include "backends/cuda/hessian_bounds.cuh"

/// Searches blocks of 32: each lane searches its own block. Device code only.
namespace nvfp4::cuda {

/// Reports whether H - shift·I is positive definite, by a Cholesky factorization. Lane i holds row
/// i.
__device__ inline bool is_definite(const SharedHessian<32>& s, float shift) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  float row[32];
#pragma unroll
  for (int j = 0; j < 32; ++j) row[j] = s.h[lane][j] - (j == lane ? shift : 0.0f);
  bool definite = true;
#pragma unroll
  for (int k = 0; k < 32; ++k) {
    const float pivot = __shfl_sync(~0u, row[k], k);
    definite = definite && pivot > 0;
    const float l = row[k] / pivot;
#pragma unroll
    for (int j = k + 1; j < 32; ++j) {
      const float below = __shfl_sync(~0u, row[k], j);  // H_jk, j > k
      if (lane > k) row[j] -= l * below;
    }
  }
  return definite;
}

/// Sets `floor`: a lower bound of the smallest eigenvalue, reduced by more than a cost's rounding
/// error, or 0 if there is none. Each warp tries one shift in a round.
__device__ inline void find_bounds(SharedHessian<32>& s) {
  const int warp = static_cast<int>(threadIdx.x) / 32;
  float smallest = INFINITY, trace = 0;
  for (int i = 0; i < 32; ++i) {
    smallest = fminf(smallest, s.h[i][i]);
    trace += s.h[i][i];
  }
  float low = 0, step = smallest / kHessianWarps;
  for (int round = 0; round < 2; ++round) {
    const float shift = low + step * static_cast<float>(warp + 1);
    const bool definite = is_definite(s, shift);
    if (threadIdx.x % 32 == 0) s.found[warp] = definite ? shift : 0.0f;
    __syncthreads();
    for (int w = 0; w < kHessianWarps; ++w) low = fmaxf(low, s.found[w]);
    __syncthreads();
    step /= kHessianWarps;
  }
  // 1e-5 of the trace exceeds the rounding errors of the factorization and of every cost.
  if (threadIdx.x == 0) s.floor = trace < INFINITY ? fmaxf(low - 2e-5f * trace, 0.0f) : 0.0f;
  __syncthreads();
}

/// Returns |r|² with a relative error of at most 1e-4 (and 1e-9 of scale²), in fast arithmetic.
__device__ inline float squared_error(const float (&x)[32], const BlockGlobal& global,
                                      float scale) {
  const float reciprocal = __frcp_rn(scale);
  float sum = 0;
#pragma unroll
  for (int j = 0; j < 32; ++j) {
    const float v = fabsf(global.cost_value(x[j])) * reciprocal;
    const float binade = fmaxf(__uint_as_float(__float_as_uint(v) & 0x7F800000u), 1.0f);
    const float shifted = __fmaf_rn(binade, 0x1p22f, v);
    const float d = v - fminf(__fmaf_rn(binade, -0x1p22f, shifted), 6.0f);
    sum = __fmaf_rn(d, d, sum);
  }
  return sum * (scale * scale);
}

/// Returns the cost of a scale. Not inlined, because it is large and called in several places.
__device__ __noinline__ float cost(const SharedHessian<32>& s, const float (&x)[32],
                                   const BlockGlobal& global, float scale) {
  const float factor = global.factor(scale);
  float r[32];
#pragma unroll
  for (int i = 0; i < 32; ++i) r[i] = difference(x[i], global, scale, factor);
  return hessian_form(r, s.h[0], 32, 32);
}

inline constexpr int kHessianWindow = 32;  ///< candidates in a bit mask

/// Returns the code of the best scale. A candidate is skipped only if floor · |r|² exceeds the best
/// cost. Where 3.5 c >= amax, |r|² of c is at least that of c/2, so a skipped scale also excludes
/// its multiples by powers of two. Each |r|² of a window is stored first, in `squares` (element i
/// at i · kHessianThreads). Then the costs of the remaining candidates are computed, each thread
/// for itself. A warp takes as many rounds as its slowest thread.
__device__ inline std::uint32_t search_lane(const SharedHessian<32>& s, const float (&x)[32],
                                            float divisor, float* squares) {
  float largest = 0;
#pragma unroll
  for (int i = 0; i < 32; ++i) largest = fmaxf(largest, fabsf(x[i]));
  if (largest == 0) return 1;
  const BlockGlobal global(divisor);
  const float amax = global.cost_value(largest);
  BestScale best;
  const auto hopeless = [&](float square, float scale) {
    return s.floor * (square * 0.9998f - 2e-9f * scale * scale) > best.cost;
  };
  const auto clips_too_much = [&](int code) {  // so does every lower code
    const float clipped = fmaxf(amax - 6.0f * e4m3_value(code), 0.0f);
    return hopeless(clipped * clipped, 0.0f);
  };
  // Above such a code every element rounds to zero, and all costs are equal. The lowest code
  // represents them.
  const auto all_zero = [&](int code) {
    return largest * global.factor(e4m3_value(code)) <= 0.25f;
  };
  int top = min(126, int{e4m3_bits(fminf(amax * (1.0f / 3.5f), 448.0f))});
  if (3.5f * e4m3_value(top) < amax && top < 126) ++top;
  if (!(s.floor > 0) || top < 24 || !(divisor >= 0x1p-90f && divisor <= 0x1p90f)) {
    best = {cost(s, x, global, e4m3_value(1)), 1};  // stays if it is NaN, as in cheapest_scale()
    for (int code = 2; code <= 126 && !all_zero(code - 1); ++code)
      best.offer(cost(s, x, global, e4m3_value(code)), static_cast<std::uint32_t>(code));
    return best.code;
  }
  // top is the lowest code with 3.5 c >= amax, or 126. Its octave comes first, with the codes below
  // it that are likely to be good. A low cost excludes many others.
  int first = min(top + 7, 126), start = top, measured = 0;
  float least = INFINITY;
#pragma unroll 1
  for (; first - measured >= top - 9; ++measured) {
    const float square = squared_error(x, global, e4m3_value(first - measured));
    squares[measured * kHessianThreads] = square;
    if (square < least) {
      least = square;
      start = first - measured;
    }
  }
  best.offer(cost(s, x, global, e4m3_value(start)), static_cast<std::uint32_t>(start));
#pragma unroll 1
  for (; first >= 1 && (first >= top || !clips_too_much(first));
       first -= kHessianWindow, measured = 0) {
    std::uint32_t left = 0;
#pragma unroll 1
    for (int i = 0; i < kHessianWindow; ++i) {
      const int code = first - i;
      if (code < 1 || (code < top && clips_too_much(code))) break;
      const float scale = e4m3_value(code);
      if (i >= measured) squares[i * kHessianThreads] = squared_error(x, global, scale);
      if ((code != start || code >= top) && !hopeless(squares[i * kHessianThreads], scale))
        left |= 1u << i;
    }
    int code = 0;  // the code whose multiples are next, if it is in the octave
#pragma unroll 1
    while (true) {
      int next = code + 8;
      if (code < top || next > 126 || all_zero(code) ||
          hopeless(squared_error(x, global, e4m3_value(next)), e4m3_value(next))) {
        next = 0;
        while (left != 0 && next == 0) {
          const int i = __ffs(static_cast<int>(left)) - 1;
          left &= left - 1;
          if (!hopeless(squares[i * kHessianThreads], e4m3_value(first - i))) next = first - i;
        }
        if (next == 0) break;
      }
      code = next;
      best.offer(cost(s, x, global, e4m3_value(code)), static_cast<std::uint32_t>(code));
    }
  }
  return best.code;
}

}  // namespace nvfp4::cuda
