#pragma once

#include <cstdint>

#include "backends/cuda/device/convert.cuh"
#include "backends/cuda/ptx/ptx.cuh"
#include "backends/device_backend.h"
#include "quantizers/gptq.h"

/// GPTQ on the GPU, with the bits of quantizers/gptq.h. Every sum runs in the order of the
/// definition, so GEMMs are in FP32 and without split-K. Matrices [K, rows] have a row of the
/// weight in each lane. Device code only.
namespace nvfp4::cuda {

/// Number of columns in a batch. Changes to later columns are applied as a GEMM after each batch.
/// It is also the side of the GEMM's tiles.
inline constexpr int kGptqBatch = 128;

/// The operands of out[k, r] += Σ matrix[j, k] · in[j, r], for j in [0, depth) in order. Row
/// strides are `columns` and `lanes`; lanes is a multiple of the tile.
struct GptqProduct {
  float* out;
  const float* matrix;
  const float* in;
  std::int64_t columns;  ///< columns of the matrix; a multiple of 4
  std::int64_t lanes;
  int depth;                    ///< a multiple of 16
  int first_tile = 0;           ///< first tile along k
  int skipped_tile = -1;        ///< tile along k that is skipped
  bool from_zero = false;       ///< starts from zero instead of `out`
  const int* wanted = nullptr;  ///< the kernel does nothing if this points to 0
};

namespace gptq_product {
inline constexpr int kThreads = 256, kTile = kGptqBatch, kSteps = 16, kStages = 3;

struct Stage {
  float matrix[kSteps][kTile];
  float in[kSteps][kTile];
};

__device__ inline void load(Stage& stage, const GptqProduct& p, std::int64_t k0, std::int64_t r0,
                            int j0) {
#pragma unroll
  for (int i = 0; i < kSteps * kTile / 4 / kThreads; ++i) {
    const int at = static_cast<int>(threadIdx.x) + i * kThreads;
    const int j = at / (kTile / 4), c = at % (kTile / 4) * 4;
    const bool there = k0 + c < p.columns;
    ptx::cp_async_16_zfill(ptx::cvta_shared(&stage.matrix[j][c]),
                           p.matrix + (j0 + j) * p.columns + (there ? k0 + c : 0), there);
    ptx::cp_async_16(ptx::cvta_shared(&stage.in[j][c]), p.in + (j0 + j) * p.lanes + r0 + c);
  }
}
}  // namespace gptq_product

/// Computes the GEMM. A thread has 8 x 8 sums: in each direction two groups of four, 64 apart.
__global__ void __launch_bounds__(gptq_product::kThreads, 2)
    gptq_product_kernel(const GptqProduct p) {
  using namespace gptq_product;
  __shared__ Stage stages[kStages];
  const int tile = p.first_tile + static_cast<int>(blockIdx.y);
  if (tile == p.skipped_tile || (p.wanted != nullptr && *p.wanted == 0)) return;
  const std::int64_t k0 = std::int64_t{tile} * kTile, r0 = std::int64_t{blockIdx.x} * kTile;
  // A warp has 8 threads along the rows and 4 along k. There are 2 x 4 warps.
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int k = warp / 2 * 16 + lane / 8 * 4, r = warp % 2 * 32 + lane % 8 * 4;
  const auto column = [&](int i) { return k + i % 4 + i / 4 * 64; };
  float sum[8][8];
#pragma unroll
  for (int i = 0; i < 8; ++i)
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float4 v{0, 0, 0, 0};
      if (!p.from_zero && k0 + column(i) < p.columns)
        v = *reinterpret_cast<const float4*>(p.out + (k0 + column(i)) * p.lanes + r0 + r + h * 64);
      sum[i][4 * h] = v.x;
      sum[i][4 * h + 1] = v.y;
      sum[i][4 * h + 2] = v.z;
      sum[i][4 * h + 3] = v.w;
    }
  const int steps = p.depth / kSteps;
  for (int s = 0; s < kStages - 1; ++s) {
    if (s < steps) load(stages[s], p, k0, r0, s * kSteps);
    ptx::cp_async_commit_group();
  }
  for (int s = 0; s < steps; ++s) {
    ptx::cp_async_wait_group<kStages - 2>();
    __syncthreads();
    if (s + kStages - 1 < steps)
      load(stages[(s + kStages - 1) % kStages], p, k0, r0, (s + kStages - 1) * kSteps);
    ptx::cp_async_commit_group();
    const Stage& stage = stages[s % kStages];
#pragma unroll
    for (int j = 0; j < kSteps; ++j) {
      float a[8], b[8];
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        *reinterpret_cast<float4*>(a + 4 * h) =
            *reinterpret_cast<const float4*>(&stage.matrix[j][k + h * 64]);
        *reinterpret_cast<float4*>(b + 4 * h) =
            *reinterpret_cast<const float4*>(&stage.in[j][r + h * 64]);
      }
#pragma unroll
      for (int i = 0; i < 8; ++i)
#pragma unroll
        for (int c = 0; c < 8; ++c) sum[i][c] = __fmaf_rn(b[c], a[i], sum[i][c]);
    }
  }
#pragma unroll
  for (int i = 0; i < 8; ++i)
#pragma unroll
    for (int h = 0; h < 2; ++h)
      if (k0 + column(i) < p.columns)
        *reinterpret_cast<float4*>(p.out + (k0 + column(i)) * p.lanes + r0 + r + h * 64) = {
            sum[i][4 * h], sum[i][4 * h + 1], sum[i][4 * h + 2], sum[i][4 * h + 3]};
}

/// Same as nearest_value(). The addition of a number with E2M1's spacing at that magnitude rounds.
/// NaN counts as 6.
__device__ inline float gptq_nearest(float wanted, float scale, float reciprocal) {
  const float y = fmaxf(fminf(wanted * reciprocal, 6.0f), -6.0f);
  const float a = fabsf(y);
  const std::uint32_t binade = max(__float_as_uint(a) & 0x7F800000u, 0x3F800000u);
  const float magic = __uint_as_float(binade + (22u << 23 | 0x400000u));
  return copysignf((a + magic) - magic, y) * scale;
}

/// The arrays of one weight, including lanes without a row.
struct GptqLanes {
  std::int64_t depth, rows, lanes;
  float *u, *difference, *gradient, *value;  ///< [depth, lanes]
  std::uint8_t* scale;                       ///< [depth / 16, lanes]
};

inline constexpr int kGptqRows = 32;  ///< rows of a thread block: a warp's lanes

namespace gptq_forward {
inline constexpr int kWarps = 8;
}

/// Same as gptq_row(), for columns [begin, begin + n) of the order. `gradient` holds the wanted
/// values in that order. `difference` receives the errors from its first row on.
__global__ void __launch_bounds__(gptq_forward::kWarps * 32)
    gptq_forward_kernel(const GptqLanes l, const DeviceGramFactor gram, std::int64_t begin, int n) {
  using namespace gptq_forward;
  __shared__ float wanted[kGptqBatch][kGptqRows];
  __shared__ float upper[kBlock][kGptqBatch];
  __shared__ float errors[kBlock][kGptqRows];
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const std::int64_t r = std::int64_t{blockIdx.x} * kGptqRows + lane;
  for (int p = warp; p < n; p += kWarps) wanted[p][lane] = l.gradient[(begin + p) * l.lanes + r];
  for (int p0 = 0; p0 < n; p0 += kBlock) {
    for (int i = static_cast<int>(threadIdx.x); i < kBlock * n; i += kWarps * 32)
      upper[i / n][i % n] = __ldg(gram.upper + (begin + p0 + i / n) * l.depth + begin + i % n);
    __syncthreads();
    if (warp == 0) {
      float w[kBlock], scale[kBlock];
      int column[kBlock];
#pragma unroll
      for (int i = 0; i < kBlock; ++i) {
        column[i] = __ldg(gram.order + begin + p0 + i);
        scale[i] = e4m3_value(l.scale[column[i] / kBlock * l.lanes + r]);
        w[i] = wanted[p0 + i][lane];
      }
#pragma unroll
      for (int i = 0; i < kBlock; ++i) {
        const float value = gptq_nearest(w[i], scale[i], 1.0f / scale[i]);
        const float error = -((w[i] - value) * __ldg(gram.reciprocal + begin + p0 + i));
#pragma unroll
        for (int k = i + 1; k < kBlock; ++k) w[k] = __fmaf_rn(error, upper[i][p0 + k], w[k]);
        errors[i][lane] = error;
        l.value[column[i] * l.lanes + r] = value;
        l.difference[(p0 + i) * l.lanes + r] = error;
      }
    }
    __syncthreads();
    float e[kBlock];
#pragma unroll
    for (int i = 0; i < kBlock; ++i) e[i] = errors[i][lane];
    for (int k = p0 + kBlock + warp; k < n; k += kWarps) {
      float w = wanted[k][lane];
#pragma unroll
      for (int i = 0; i < kBlock; ++i) w = __fmaf_rn(e[i], upper[i][k], w);
      wanted[k][lane] = w;
    }
    __syncthreads();
  }
}

/// Same as descend_block(), for blocks [begin / 16, (begin + n) / 16) and 32 rows. Each warp tries
/// one scale. `difference` receives the changes. A later GEMM updates the gradient outside the
/// batch.
__global__ void __launch_bounds__(kScaleNeighbours * 32, 2)
    gptq_descent_kernel(const GptqLanes l, const DeviceGramFactor gram, std::int64_t begin, int n,
                        const int* wanted, int* changed) {
  constexpr int kThreads = kScaleNeighbours * 32;
  static_assert(kScaleNeighbours == kBlock, "a warp for each scale, and for each column");
  __shared__ float gradient[kGptqBatch][kGptqRows];
  __shared__ float rows[kBlock][kGptqBatch];  // rows of H
  __shared__ float target[kBlock][kGptqRows], step[kBlock][kGptqRows];
  __shared__ float costs[kScaleNeighbours][kGptqRows], changes[kBlock][kGptqRows];
  __shared__ float4 upper[kBlock][kBlock / 4];
  if (*wanted == 0) return;
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const std::int64_t r = std::int64_t{blockIdx.x} * kGptqRows + lane;
  for (int k = warp; k < n; k += kScaleNeighbours)
    gradient[k][lane] = l.gradient[(begin + k) * l.lanes + r];
  bool any = false;
  for (int k0 = 0; k0 < n; k0 += kBlock) {
    const std::int64_t block = (begin + k0) / kBlock;
    for (int i = static_cast<int>(threadIdx.x); i < kBlock * n; i += kThreads)
      rows[i / n][i % n] = __ldg(gram.gram + (begin + k0 + i / n) * l.depth + begin + i % n);
    if (threadIdx.x < kBlock * kBlock / 4)
      upper[threadIdx.x / 4][threadIdx.x % 4] =
          __ldg(reinterpret_cast<const float4*>(gram.block_upper) + block * (kBlock * kBlock / 4) +
                threadIdx.x);
    __syncthreads();
    float* const value = l.value + (begin + k0 + warp) * l.lanes + r;
    const float before = *value;
    {
      const float* inverse = gram.block_inverse + block * (kBlock * kBlock) + warp * kBlock;
      float sum = 0;
#pragma unroll
      for (int j = 0; j < kBlock; ++j)
        sum = __fmaf_rn(__ldg(inverse + j), gradient[k0 + j][lane], sum);
      step[warp][lane] = sum;
      target[warp][lane] = before - sum;
    }
    __syncthreads();
    float cost = 0, w[kBlock];
#pragma unroll
    for (int i = 0; i < kBlock; ++i) {
      cost = __fmaf_rn(gradient[k0 + i][lane], step[i][lane], cost);
      w[i] = target[i][lane];
    }
    cost = cost * (1 - 0x1p-16f);
    std::uint8_t* const scale = l.scale + block * l.lanes + r;
    const int code = min(max(*scale + warp - kScaleNeighbours / 2, 1), int{E4M3::kMaxBits});
    const float s = e4m3_value(static_cast<std::uint32_t>(code)), reciprocal = 1.0f / s;
    float sum = 0;
#pragma unroll
    for (int i = 0; i < kBlock; ++i) {
      const float found = gptq_nearest(w[i], s, reciprocal);
      const float error = -((w[i] - found) * __ldg(gram.block_reciprocal + block * kBlock + i));
      sum = __fmaf_rn(error, error, sum);
      w[i] = found;
#pragma unroll
      for (int k = i + 1; k < kBlock; ++k)
        w[k] = __fmaf_rn(error, reinterpret_cast<const float*>(upper[i])[k], w[k]);
    }
    costs[warp][lane] = sum;
    __syncthreads();
    int best = -1;
#pragma unroll
    for (int i = 0; i < kScaleNeighbours; ++i)
      if (costs[i][lane] < cost) {
        cost = costs[i][lane];
        best = i;
      }
    if (best == warp) {
      any = true;
      *scale = static_cast<std::uint8_t>(code);
#pragma unroll
      for (int i = 0; i < kBlock; ++i) target[i][lane] = w[i];
    }
    __syncthreads();
    {
      const float after = best < 0 ? before : target[warp][lane];
      changes[warp][lane] = after - before;
      *value = after;
      l.difference[(begin + k0 + warp) * l.lanes + r] = after - before;
    }
    __syncthreads();
    float change[kBlock];
#pragma unroll
    for (int i = 0; i < kBlock; ++i) change[i] = changes[i][lane];
    for (int k = warp; k < n; k += kScaleNeighbours) {
      float g = gradient[k][lane];
#pragma unroll
      for (int i = 0; i < kBlock; ++i) g = __fmaf_rn(change[i], rows[i][k], g);
      gradient[k][lane] = g;
    }
    __syncthreads();
  }
  for (int k = warp; k < n; k += kScaleNeighbours)
    l.gradient[(begin + k) * l.lanes + r] = gradient[k][lane];
  if (any) *changed = 1;
}

}  // namespace nvfp4::cuda
