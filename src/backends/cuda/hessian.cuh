#pragma once

#include "backends/cuda/quantize.cuh"

/// The scale with the least rᵀ H r. All vectors share the H of a block of K, so a thread block
/// takes one block of K and a thread a vector. Device code only.
namespace nvfp4::cuda {

inline constexpr int kHessianThreads = 256;

/// H of the block in shared memory, and a floor under rᵀ H r / |r|².
template <int kSize>
struct SharedHessian {
  alignas(16) float h[kSize][kSize];
  float floor;
};

/// Whether H - shift·I is positive definite, by a Cholesky factorization: lane i holds row i.
template <int kSize>
__device__ inline bool is_definite(const SharedHessian<kSize>& s, float shift) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  float row[kSize];
#pragma unroll
  for (int j = 0; j < kSize; ++j)
    row[j] = lane < kSize ? s.h[lane][j] - (j == lane ? shift : 0.0f) : 0.0f;
  bool definite = true;
#pragma unroll
  for (int k = 0; k < kSize; ++k) {
    const float pivot = __shfl_sync(~0u, row[k], k);
    definite = definite && pivot > 0;
    const float l = row[k] / pivot;
#pragma unroll
    for (int j = k + 1; j < kSize; ++j) {
      const float below = __shfl_sync(~0u, row[k], j);  // H_jk, j > k
      if (lane > k) row[j] -= l * below;
    }
  }
  return definite;
}

/// Sets `floor`: below the smallest eigenvalue by more than a cost can be off by rounding, or 0 if
/// there is no such number. Each warp tries one shift a round.
template <int kSize>
__device__ inline void find_floor(SharedHessian<kSize>& s, float (&found)[kHessianThreads / 32]) {
  constexpr int kWarps = kHessianThreads / 32;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  float smallest = INFINITY, trace = 0;
  for (int i = 0; i < kSize; ++i) {
    smallest = fminf(smallest, s.h[i][i]);
    trace += s.h[i][i];
  }
  float low = 0, step = smallest / kWarps;
  for (int round = 0; round < 2; ++round) {
    const float shift = low + step * static_cast<float>(warp + 1);
    const bool definite = is_definite(s, shift);
    if (threadIdx.x % 32 == 0) found[warp] = definite ? shift : 0.0f;
    __syncthreads();
    for (int w = 0; w < kWarps; ++w) low = fmaxf(low, found[w]);
    __syncthreads();
    step /= kWarps;
  }
  // Rounding: 1e-5 of the trace bounds that of the factorization and of every cost.
  if (threadIdx.x == 0) s.floor = trace < INFINITY ? fmaxf(low - 2e-5f * trace, 0.0f) : 0.0f;
  __syncthreads();
}

/// |r|² within a relative error of 1e-4 (and 1e-9 of scale²), in fast arithmetic.
template <int kSize>
__device__ inline float squared_error(const float (&u)[kSize], float scale) {
  const float reciprocal = __frcp_rn(scale);
  float sum = 0;
#pragma unroll
  for (int j = 0; j < kSize; ++j) {
    const float v = fabsf(u[j]) * reciprocal;
    const float binade = fmaxf(__uint_as_float(__float_as_uint(v) & 0x7F800000u), 1.0f);
    const float shifted = __fmaf_rn(binade, 0x1p22f, v);
    const float d = v - fminf(__fmaf_rn(binade, -0x1p22f, shifted), 6.0f);
    sum = __fmaf_rn(d, d, sum);
  }
  return sum * (scale * scale);
}

/// Blocks of 32 are too large to have it in every place of the search.
template <int kSize>
__device__ __noinline__ float cost_out_of_line(const SharedHessian<kSize>& s,
                                               const float (&u)[kSize], float scale) {
  return hessian_cost(u, s.h[0], kSize, kSize, scale);
}

template <int kSize>
__device__ inline float cost(const SharedHessian<kSize>& s, const float (&u)[kSize], float scale) {
  asm volatile("" ::: "memory");  // or all of H is kept, in more registers than there are
  if constexpr (kSize == 16) return hessian_cost(u, s.h[0], kSize, kSize, scale);
  return cost_out_of_line(s, u, scale);
}

struct BestScale {
  float cost = INFINITY;
  std::uint32_t code = 127;

  __device__ void offer(float c, std::uint32_t candidate) {
    if (c < cost || (c == cost && candidate < code)) {
      cost = c;
      code = candidate;
    }
  }
};

inline constexpr int kHessianWindow = 32;  ///< candidates that are weighed together, a bit each

/// Skips a candidate only if floor · |r|² alone exceeds the best cost. Where 3.5 c >= amax the |r|²
/// of c is at least that of c/2, so that a skipped scale takes its multiples by powers of two
/// along. First every |r|² of a window, into `squares` (element i at i · kHessianThreads); then the
/// costs of what these leave, for which each thread goes its own way, so that a warp does as many
/// rounds as the thread with the most of them.
template <int kSize>
__device__ inline std::uint32_t search_hessian(const SharedHessian<kSize>& s,
                                               const float (&u)[kSize], float amax,
                                               float* squares) {
  if (amax == 0) return 1;
  BestScale best;
  const auto hopeless = [&](float square, float scale) {
    return s.floor * (square * 0.9998f - 2e-9f * scale * scale) > best.cost;
  };
  const auto clips_too_much = [&](int code) {  // and every lower one does
    const float clipped = fmaxf(amax - 6.0f * e4m3_value(code), 0.0f);
    return hopeless(clipped * clipped, 0.0f);
  };
  // From here up every element rounds to zero, and all costs are equal: the lowest stands for all.
  const auto all_zero = [&](int code) { return 0.25f * e4m3_value(code) >= amax; };
  int top = min(126, int{e4m3_bits(fminf(amax * (1.0f / 3.5f), 448.0f))});
  if (3.5f * e4m3_value(top) < amax && top < 126) ++top;
  if (!(s.floor > 0) || top < 24) {
    best = {cost(s, u, e4m3_value(1)), 1};  // stays if it is NaN, as in cheapest_scale()
    for (int code = 2; code <= 126 && !all_zero(code - 1); ++code)
      best.offer(cost(s, u, e4m3_value(code)), static_cast<std::uint32_t>(code));
    return best.code;
  }
  // top: the lowest code with 3.5 c >= amax, or 126. Its octave is first, with what is below it as
  // far as a good cost is likely: that prunes the rest.
  int first = min(top + 7, 126), start = top, measured = 0;
  float least = INFINITY;
#pragma unroll 1
  for (; first - measured >= top - 9; ++measured) {
    const float square = squared_error(u, e4m3_value(first - measured));
    squares[measured * kHessianThreads] = square;
    if (square < least) {
      least = square;
      start = first - measured;
    }
  }
  best.offer(cost(s, u, e4m3_value(start)), static_cast<std::uint32_t>(start));
#pragma unroll 1
  for (; first >= 1 && (first >= top || !clips_too_much(first));
       first -= kHessianWindow, measured = 0) {
    std::uint32_t left = 0;
#pragma unroll 1
    for (int i = 0; i < kHessianWindow; ++i) {
      const int code = first - i;
      if (code < 1 || (code < top && clips_too_much(code))) break;
      const float scale = e4m3_value(code);
      if (i >= measured) squares[i * kHessianThreads] = squared_error(u, scale);
      if ((code != start || code >= top) && !hopeless(squares[i * kHessianThreads], scale))
        left |= 1u << i;
    }
    int code = 0;  // whose multiples are next, if from the octave
#pragma unroll 1
    while (true) {
      int next = code + 8;
      if (code < top || next > 126 || all_zero(code) ||
          hopeless(squared_error(u, e4m3_value(next)), e4m3_value(next))) {
        next = 0;
        while (left != 0 && next == 0) {
          const int i = __ffs(static_cast<int>(left)) - 1;
          left &= left - 1;
          if (!hopeless(squares[i * kHessianThreads], e4m3_value(first - i))) next = first - i;
        }
        if (next == 0) break;
      }
      code = next;
      best.offer(cost(s, u, e4m3_value(code)), static_cast<std::uint32_t>(code));
    }
  }
  return best.code;
}

template <DType kType, int kSize>
__global__ void __launch_bounds__(kHessianThreads, kSize == 16 ? 2 : 1)
    hessian_kernel(const QuantizeArgs a) {
  __shared__ SharedHessian<kSize> shared;
  __shared__ float squares[kHessianWindow][kHessianThreads];
  __shared__ float found[kHessianThreads / 32];
  const QuantizedShape& shape = a.out.shape;
  const std::int64_t block = blockIdx.x;
  for (int i = threadIdx.x; i < kSize * kSize; i += kHessianThreads)
    shared.h[i / kSize][i % kSize] =
        __ldg(a.hessian + (block * kSize + i / kSize) * a.hessian_stride + i % kSize);
  __syncthreads();
  find_floor(shared, found);

  const bool rows = shape.axis == BlockAxis::rows;
  const std::int64_t vectors = shape.vectors();
  for (std::int64_t vector = std::int64_t{blockIdx.y} * kHessianThreads + threadIdx.x;
       vector < vectors; vector += std::int64_t{gridDim.y} * kHessianThreads) {
    float v[kSize], u[kSize];
    bool has_nan = false;
    float amax = 0;
    const std::int64_t start =
        rows ? vector * a.x.stride + block * kSize : block * kSize * a.x.stride + vector;
    const std::int64_t step = rows ? 1 : a.x.stride;
    if (rows && is_aligned(a.x)) {
#pragma unroll
      for (int h = 0; h < kSize / 16; ++h) {
        const Block<kType> b = load_block<kType>(
            static_cast<const char*>(a.x.data) + (start + 16 * h) * kElementBytes<kType>, true);
#pragma unroll
        for (int i = 0; i < 16; ++i) v[16 * h + i] = b.value(i);
      }
    } else {
#pragma unroll
      for (int i = 0; i < kSize; ++i) v[i] = load_element<kType>(a.x.data, start + i * step);
    }
    const GlobalScale global = a.globals.of(vector);
#pragma unroll
    for (int i = 0; i < kSize; ++i) {
      has_nan |= isnan(v[i]);
      amax = fmaxf(amax, fabsf(v[i]));
      u[i] = cost_value(v[i], global.divisor);
    }
    const std::uint32_t code = search_hessian(shared, u, fminf(amax * global.divisor, kCostClamp),
                                              &squares[0][threadIdx.x]);
    const Encoder encoder(global.divisor);
#pragma unroll
    for (int h = 0; h < kSize / 16; ++h) {
      const uint2 codes = encoder(v + 16 * h, code, has_nan);
      if (rows) {
        reinterpret_cast<uint2*>(
            a.out.codes)[(vector * shape.blocks() + block) * (kSize / 16) + h] = codes;
      } else {
#pragma unroll
        for (int i = 0; i < 8; ++i)
          a.out.codes[(block * (kSize / 2) + h * 8 + i) * shape.cols + vector] =
              static_cast<std::uint8_t>((i < 4 ? codes.x : codes.y) >> (i % 4 * 8));
      }
    }
    const std::int64_t offset =
        shape.layout == ScaleLayout::linear && !rows
            ? block * shape.cols + vector
            : scale_offset_of(shape.layout, vector, block, vectors, shape.blocks());
    a.out.scales[offset] = static_cast<std::uint8_t>(code);
    if (a.write_globals && block == 0) write_global(a.out, vector, global);
  }
}

}  // namespace nvfp4::cuda
