#pragma once

#include "backends/cuda/device/encode.cuh"
#include "backends/cuda/device/routing.cuh"
#include "backends/cuda/device/search.cuh"
#include "backends/cuda/row_args.h"
#include "quantizers/row_math.h"

/// Operations of a thread block on a row in registers.
namespace nvfp4::cuda {

struct Largest {
  __device__ float operator()(float x, float y) const { return fmaxf(x, y); }
};
struct Sum {
  __device__ float operator()(float x, float y) const { return x + y; }
};

/// Combines `kCount` values as a balanced binary tree, adjacent values first. Overwrites them.
template <int kCount, class Combine>
__device__ inline float tree(float (&v)[kCount], Combine combine) {
#pragma unroll
  for (int step = 1; step < kCount; step *= 2)
#pragma unroll
    for (int i = 0; i < kCount; i += 2 * step) v[i] = combine(v[i], v[i + step]);
  return v[0];
}

/// Returns the sum of a block's squares, a subtree of the row's sum.
__device__ inline float block_squares(const float* v) {
  return (four_squares(v[0], v[1], v[2], v[3]) + four_squares(v[4], v[5], v[6], v[7])) +
         (four_squares(v[8], v[9], v[10], v[11]) + four_squares(v[12], v[13], v[14], v[15]));
}

/// A reduction over all threads as a balanced binary tree. With two buffers one barrier for each
/// reduction suffices: a writer has passed the other buffer's barrier since the last reads.
struct RowReduction {
  float (*buffers)[4 * 32];
  int turn = 0;

  /// Combines kCount values of each thread. Value j of all threads is a tree, and the trees are
  /// combined.
  template <int kCount, class Combine>
  __device__ float operator()(float (&v)[kCount], Combine combine) {
#pragma unroll
    for (int j = 0; j < kCount; ++j)
#pragma unroll
      for (int step = 1; step < 32; step *= 2)
        v[j] = combine(v[j], __shfl_xor_sync(~0u, v[j], step));
    if (blockDim.x == 32) return tree(v, combine);
    float* shared = buffers[turn];
    turn ^= 1;
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int warps = static_cast<int>(blockDim.x) / 32;
    if (lane == 0)
#pragma unroll
      for (int j = 0; j < kCount; ++j) shared[j * warps + threadIdx.x / 32] = v[j];
    __syncthreads();
    if constexpr (kCount == 1) {
      v[0] = lane < warps ? shared[lane] : 0.0f;
#pragma unroll
      for (int step = 1; step < 32; step *= 2)
        v[0] = combine(v[0], __shfl_xor_sync(~0u, v[0], step));
      return v[0];
    }
    // The counts are powers of two, so one warp combines all leaves: kCount * warps <= 64.
    float sum = lane < kCount * warps ? shared[lane] : 0.0f;
    float more = lane + 32 < kCount * warps ? shared[lane + 32] : 0.0f;
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
      sum = combine(sum, __shfl_xor_sync(~0u, sum, step));
      if (kCount * warps > 32) more = combine(more, __shfl_xor_sync(~0u, more, step));
    }
    return combine(sum, more);
  }
};

__device__ inline float rounded_to(DType type, float v) {
  if (type == DType::f32) return v;
  if (type == DType::bf16) return BF16{BF16::from_float(v).bits}.to_float();
  return __half2float(__float2half_rn(v));
}

template <DType kType, bool kGeneral>
__device__ inline void load_typed(const MatrixView& m, std::int64_t index, float* v) {
  const Block<kType> b = load_block<kType, kGeneral>(
      static_cast<const char*>(m.data) + index * kElementBytes<kType>, is_aligned(m));
#pragma unroll
  for (int i = 0; i < 16; ++i) v[i] = b.value(i);
}

/// Computes v + residual, rounded to the dtype of residual_out, and stores it there and in v.
template <bool kGeneral>
__device__ inline void add_residual(const RowArgs& a, std::int32_t row, std::int64_t k, float* v) {
  float residual[16];
  const std::int64_t index = row * a.residual.stride + k;
  if (a.residual.dtype == DType::bf16)
    load_typed<DType::bf16, kGeneral>(a.residual, index, residual);
  else if (a.residual.dtype == DType::f16)
    load_typed<DType::f16, kGeneral>(a.residual, index, residual);
  else
    load_typed<DType::f32, kGeneral>(a.residual, index, residual);
#pragma unroll
  for (int i = 0; i < 16; ++i) v[i] = rounded_to(a.residual_out.dtype, v[i] + residual[i]);
  store_values(a.residual_out.data, a.residual_out.dtype, row * a.residual_out.stride + k, v);
}

/// Computes Σ mix[h] · stream h, in the order of h.
template <DType kType, bool kGeneral>
__device__ inline void mix_block(const RowArgs& a, std::int32_t row, int block, float* v) {
#pragma unroll
  for (int i = 0; i < 16; ++i) v[i] = 0.0f;
  if (block >= a.blocks) return;
  const float* mix = a.mix + row * a.mix_stride;
  const char* x = a.x + row * a.x_stride + std::int64_t{block} * 16 * kElementBytes<kType>;
  const std::int64_t stream = std::int64_t{a.blocks} * 16 * kElementBytes<kType>;
  Block<kType> loaded[kMostStreams];
#pragma unroll
  for (int h = 0; h < kMostStreams; ++h)
    if (h < a.streams) loaded[h] = load_block<kType, kGeneral>(x + h * stream, a.aligned);
#pragma unroll
  for (int h = 0; h < kMostStreams; ++h) {
    if (h >= a.streams) break;
    const float weight = __ldg(mix + h);
#pragma unroll
    for (int i = 0; i < 16; ++i) {
      const float product = weight * loaded[h].value(i);
      v[i] = h == 0 ? product : v[i] + product;
    }
  }
}

template <int kBlocks>
__device__ inline void load_weights(const RowArgs& a, const int (&blocks)[kBlocks],
                                    float* weights) {
#pragma unroll
  for (int j = 0; j < kBlocks; ++j) {
    if (blocks[j] >= a.blocks) continue;
    const float* w = a.weight + std::int64_t{blocks[j]} * 16;
#pragma unroll
    for (int i = 0; i < 16; i += 4) {
      const float4 four = __ldg(reinterpret_cast<const float4*>(w + i));
      weights[16 * j + i] = four.x;
      weights[16 * j + i + 1] = four.y;
      weights[16 * j + i + 2] = four.z;
      weights[16 * j + i + 3] = four.w;
    }
  }
}

/// Normalizes a row. kChunked: value j of all threads is a subtree of the row's sums. Otherwise the
/// values of a thread are.
template <int kBlocks, bool kChunked>
__device__ inline void normalize(const RowArgs& a, std::int32_t row, RowReduction& reduce,
                                 const float* weights, float (&v)[16 * kBlocks]) {
  float sums[kBlocks];
#pragma unroll
  for (int j = 0; j < kBlocks; ++j) sums[j] = block_squares(v + 16 * j);
  float total;
  if constexpr (kChunked) {
    total = reduce(sums, Sum{});
  } else {
    float one[1] = {tree(sums, Sum{})};
    total = reduce(one, Sum{});
  }
  const float rstd = reciprocal_rms(total, std::int64_t{a.blocks} * 16, a.eps);
  if (a.rstd != nullptr && threadIdx.x == 0) a.rstd[row] = rstd;
#pragma unroll
  for (int i = 0; i < 16 * kBlocks; ++i) v[i] = normalized(v[i], weights[i], rstd);
  if (a.intermediate != DType::f32)
#pragma unroll
    for (int i = 0; i < 16 * kBlocks; ++i) v[i] = rounded_to(a.intermediate, v[i]);
}

/// Reports whether `row` belongs to a group. The groups are in order.
__device__ inline bool in_a_group(const RowGroups& groups, std::int64_t row) {
  std::int64_t low = 0, high = groups.count;  // the first group that ends after the row
  while (low < high) {
    const std::int64_t middle = (low + high) / 2;
    if (__ldg(groups.ends + middle) > row)
      high = middle;
    else
      low = middle + 1;
  }
  return low < groups.count && __ldg(groups.starts + low) <= row;
}

__device__ inline void stage_route(const RowArgs& a, std::int64_t row, std::int64_t t) {
  a.staged.ids[row * a.staged.id_stride + t] =
      load_index(a.routing.ids, a.routing.id_type, row * a.routing.id_stride + t);
  a.staged.weights[row * a.staged.weight_stride + t] =
      a.routing.weights[row * a.routing.weight_stride + t];
}
__device__ inline void stage_routing(const RowArgs& a, std::int64_t row) {
  for (std::int64_t t = threadIdx.x; t < a.top_k; t += blockDim.x) stage_route(a, row, t);
}

struct BlockMaximum {
  float amax = 0;  ///< ignoring NaN
  bool has_nan = false;
};

/// Returns the largest magnitude of 16 values, or NaN if one is NaN.
__device__ __forceinline__ float maximum_or_nan(const float* v) {
  float m = 0;
#pragma unroll
  for (int i = 0; i < 16; ++i)
    asm("{ .reg .f32 a; abs.f32 a, %1; max.NaN.f32 %0, %0, a; }" : "+f"(m) : "f"(v[i]));
  return m;
}

__device__ __forceinline__ BlockMaximum maximum_of(const float* v) {
  float m = maximum_or_nan(v);
  if (!isnan(m)) return {m, false};
  m = 0;
#pragma unroll
  for (int i = 0; i < 16; ++i) m = fmaxf(m, fabsf(v[i]));
  return {m, true};
}

/// Returns the largest magnitude. NaN is ignored and replaced by infinity, which has the same code.
__device__ __forceinline__ float maximum_without_nans(float (&v)[16]) {
  float m = maximum_or_nan(v);
  if (isnan(m)) [[unlikely]] {
    m = 0;
#pragma unroll
    for (int i = 0; i < 16; ++i) {
      m = fmaxf(m, fabsf(v[i]));
      v[i] = isnan(v[i]) ? INFINITY : v[i];
    }
  }
  return m;
}

/// The addresses of the scales of a thread's chunks.
struct ScaleAddress {
  std::uint8_t* start;  ///< scale of the thread's first block in row 0

  __device__ ScaleAddress(const RowArgs& a, int block)
      : start(a.scales + scale_offset_of(a.layout, 0, block, a.rows, a.blocks)) {}
  __device__ std::uint8_t* of(const ScaleSteps& s, std::int32_t row) const {
    if (s.tile_shift == 0) return start + std::int64_t{row} * s.tile;
    const std::int32_t in_tile = row & ((1 << s.tile_shift) - 1);
    return start +
           (std::int64_t{row >> s.tile_shift} * s.tile + (in_tile % 32 * s.row + in_tile / 32 * 4));
  }
};

/// Runs any quantizer but max. Not inlined, because it would take registers in every kernel.
template <int kBlockSize>
__device__ __noinline__ std::uint32_t choose_searched(Quantizer quantizer, const float* x,
                                                      float amax, float divisor) {
  return choose_code<kBlockSize>(quantizer, x, amax, divisor, nullptr);
}

/// Returns the scale of block j of the thread. With blocks of 32 both halves of a pair find the
/// same.
template <int kBlocks>
__device__ inline std::uint32_t search_code(const RowArgs& a, int j, const float (&v)[16 * kBlocks],
                                            const BlockMaximum (&maxima)[kBlocks], float divisor) {
  float x[32];
  if (a.block == 16) {
#pragma unroll
    for (int i = 0; i < 16; ++i) x[i] = v[16 * j + i];
    return choose_searched<16>(a.quantizer, x, maxima[j].amax, divisor);
  }
  if constexpr (kBlocks % 2 == 0) {
    const int pair = j / 2 * 2;
#pragma unroll
    for (int i = 0; i < 32; ++i) x[i] = v[16 * pair + i];
    return choose_searched<32>(a.quantizer, x, fmaxf(maxima[pair].amax, maxima[pair + 1].amax),
                               divisor);
  }
  return 0;  // the launcher gives blocks of 32 only to threads with pairs
}

template <int kBlocks, bool kGeneral>
__device__ inline void encode_row(const RowArgs& a, std::int64_t row, const int (&blocks)[kBlocks],
                                  const float (&v)[16 * kBlocks],
                                  const BlockMaximum (&maxima)[kBlocks],
                                  const GlobalScale& global) {
  const Encoder encoder(global.divisor);
  uint2* codes = reinterpret_cast<uint2*>(a.codes) + row * a.blocks;
#pragma unroll
  for (int j = 0; j < kBlocks; ++j) {
    if (blocks[j] >= a.blocks) break;
    std::uint32_t code = encoder.scale_code(maxima[j].amax);
    if constexpr (kGeneral)
      if (a.quantizer != Quantizer::max)
        code = search_code<kBlocks>(a, j, v, maxima, global.divisor);
    codes[blocks[j]] = encoder(v + 16 * j, code, maxima[j].has_nan);
    if (a.block == 16 && a.layout == ScaleLayout::linear)
      a.scales[row * a.blocks + blocks[j]] = static_cast<std::uint8_t>(code);
    else if (a.block == 16 || j % 2 == 0)
      a.scales[scale_offset_of(a.layout, row, blocks[j] * 16 / a.block, a.rows,
                               a.blocks * 16 / a.block)] = static_cast<std::uint8_t>(code);
  }
}

__device__ inline void clear_row(const RowArgs& a, std::int64_t row) {
#pragma unroll 1
  for (int b = static_cast<int>(threadIdx.x); b < a.blocks; b += static_cast<int>(blockDim.x)) {
    reinterpret_cast<uint2*>(a.codes)[row * a.blocks + b] = {0, 0};
    a.scales[scale_offset_of(a.layout, row, b * 16 / a.block, a.rows, a.blocks * 16 / a.block)] = 0;
  }
}

}  // namespace nvfp4::cuda
