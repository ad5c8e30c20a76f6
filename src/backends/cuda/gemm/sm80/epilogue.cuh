#pragma once

#include "backends/cuda/gemm/epilogue_factors.cuh"
#include "backends/cuda/gemm/epilogue_values.cuh"
#include "backends/cuda/gemm/sm80/mainloop.cuh"
#include "backends/cuda/gemm/sm80/split_k.cuh"
#include "backends/cuda/gemm/swiglu_values.cuh"

/// Adds up the warps' sums in shared memory, [part of K][row of x][row of W], then stores them or
/// their SwiGLU.
namespace nvfp4::cuda::sm80 {

/// Stores the sums of slab `slab` of a warp in shared memory.
template <class Config>
__device__ __forceinline__ void store_sums(const Sums<Config>& d, int slab, float* sums,
                                           const WarpPlace<Config>& at) {
  constexpr int kOctets = Config::kSlabRows < 8 ? 1 : Config::kSlabRows / 8;
  sums += at.part * Config::kSlabRows * Config::kSumStride + at.n * Config::kWarpStrips * 16 +
          at.lane / 4;
#pragma unroll
  for (int s = 0; s < Config::kWarpStrips; ++s)
#pragma unroll
    for (int t = 0; t < kOctets; ++t)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int row = t * 8 + at.lane % 4 * 2 + i % 2;
        if (Config::kSlabRows >= 8 || row < Config::kSlabRows)
          sums[row * Config::kSumStride + s * 16 + i / 2 * 8] = d[s][slab * kOctets + t][i];
      }
}

__device__ __forceinline__ float4 added(const float4& a, const float4& b) {
  return {a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w};
}

/// Adds up four adjacent rows of W and a row of x of the slab, in the order of the parts. 16 parts
/// are added in pairs.
template <class Config>
struct SumOfParts {
  const float* sums;

  __device__ __forceinline__ float4 operator()(int t, int row) const {
    constexpr int kOrdered = Config::kParts < 16 ? Config::kParts : 8;
    const auto of = [&](int part) {
      const auto at = [&](int p) {
        return *reinterpret_cast<const float4*>(
            sums + (p * Config::kSlabRows + t) * Config::kSumStride + row);
      };
      return Config::kParts < 16 ? at(part) : added(at(part), at(part + 8));
    };
    float4 sum = of(0);
#pragma unroll
    for (int part = 1; part < kOrdered; ++part) sum = added(sum, of(part));
    return sum;
  }
};

/// Returns the combination of a row of W of the tile.
template <class Config>
__device__ __forceinline__ LinearCombination factors_of(const KernelArguments& p,
                                                        const WorkTile& work,
                                                        const typename Config::State& state,
                                                        int row) {
  if constexpr (Config::kBringsFactors) return combination_of(p, state, row);
  row = min(work.n_tile * Config::kTileN + row, p.n - 1);
  if constexpr (Config::kSwiglu) row = static_cast<int>(gate_up_row(row, p.n / 2, p.interleave));
  return LinearCombination(p, work.group, row);
}
/// Returns the global scale of row t of x of the tile, which is row `x_row` of x.
template <class Config>
__device__ __forceinline__ float x_factor_of(const KernelArguments& p,
                                             const typename Config::State& state, int t,
                                             int x_row) {
  if constexpr (Config::kBringsFactors) return p.x_global == nullptr ? 1.0f : state.x_global[t];
  return x_global_of(p, x_row);
}

/// Finishes `rows` rows of x of the tile from `first` on. `x_row` is the tile's first row in x.
template <class Config, class Sum>
__device__ __forceinline__ void finish_rows(const KernelArguments& p, const WorkTile& work,
                                            int x_row, int first, int rows,
                                            const typename Config::State& state,
                                            const Sum& sum_of) {
  constexpr int kAcross = Config::kTileN / 4;  // threads along a row of out
  static_assert(Config::kThreads % kAcross == 0);
  const int column = static_cast<int>(threadIdx.x) % kAcross * 4;
  const int row = work.n_tile * Config::kTileN + column;
  if (row >= p.n) return;
  LinearCombination finish[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) finish[i] = factors_of<Config>(p, work, state, column + i);
#pragma unroll 1
  for (int t = static_cast<int>(threadIdx.x) / kAcross; t < rows; t += Config::kThreads / kAcross) {
    const int row_of_tile = first + t;
    if (work.m + row_of_tile >= work.m_end) break;
    const float4 sum = sum_of(t, column);
    const float x = x_factor_of<Config>(p, state, first + t, x_row + first + t);
    const float v[4] = {finish[0](sum.x, x), finish[1](sum.y, x), finish[2](sum.z, x),
                        finish[3](sum.w, x)};
    store_values_of_four(p,
                         (work.m + row_of_tile) * p.out_stride +
                             static_cast<std::int64_t>(work.group) * p.out_group_cols + row,
                         v, row + 4 <= p.n, p.n - row);
  }
}

template <class Config, class Sum>
__device__ __forceinline__ void finish_rows_swiglu(const KernelArguments& p, const WorkTile& work,
                                                   int x_row, int first, int rows,
                                                   const typename Config::State& state,
                                                   const Sum& sum_of) {
  constexpr int kAcross = Config::kTileN / 8;  // threads along a row of out
  static_assert(kAcross >= 4 && Config::kThreads % kAcross == 0);
  const int output = static_cast<int>(threadIdx.x) % kAcross * 4;
  const int gate_row = output / 8 * 16 + output % 8;
  const int column = work.n_tile * (Config::kTileN / 2) + output;
  LinearCombination of_gate[4], of_up[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    of_gate[i] = factors_of<Config>(p, work, state, gate_row + i);
    of_up[i] = factors_of<Config>(p, work, state, gate_row + 8 + i);
  }
  // All lanes of a warp run the same number of iterations, see finish_outputs().
#pragma unroll 1
  for (int t0 = 0; t0 < rows; t0 += Config::kThreads / kAcross) {
    const int t = t0 + static_cast<int>(threadIdx.x) / kAcross;
    const bool inside = t < rows && work.m + first + t < work.m_end && column < p.n / 2;
    float v[4] = {};
    if (inside) {
      const float4 gates = sum_of(t, gate_row);
      const float4 ups = sum_of(t, gate_row + 8);
      const float x = x_factor_of<Config>(p, state, first + t, x_row + first + t);
      const float gate[4] = {gates.x, gates.y, gates.z, gates.w};
      const float up[4] = {ups.x, ups.y, ups.z, ups.w};
#pragma unroll
      for (int i = 0; i < 4; ++i)
        v[i] = swiglu_one(of_gate[i](gate[i], x), of_up[i](up[i], x), p.limit);
    }
    finish_outputs(p, work.m + first + t, column, v, inside);
  }
}

/// Stores the block's sums in the workspace.
template <class Config, class Sum>
__device__ __forceinline__ void store_partials(const KernelArguments& p, const WorkTile& work,
                                               int first, int rows, const Sum& sum_of) {
  constexpr int kAcross = Config::kTileN / 4;
  const int column = static_cast<int>(threadIdx.x) % kAcross * 4;
  if (work.n_tile * Config::kTileN + column >= p.n) return;
  float* const to = partials_of<Config>(p, static_cast<int>(blockIdx.x) & (p.split_k - 1)) + column;
#pragma unroll 1
  for (int t = static_cast<int>(threadIdx.x) / kAcross; t < rows; t += Config::kThreads / kAcross) {
    if (work.m + first + t >= work.m_end) break;
    __stcg(reinterpret_cast<float4*>(to + (first + t) * Config::kTileN), sum_of(t, column));
  }
}

/// Finishes the tile. All threads call it, after the stages have been read.
template <class Config>
__device__ __forceinline__ void epilogue(const KernelArguments& p, const WorkTile& work, int x_row,
                                         typename Config::State& state, const Sums<Config>& d,
                                         float* sums, const WarpPlace<Config>& at) {
  const auto finish = [&](int first, int rows, const auto& sum_of) {
    if constexpr (Config::kSwiglu)
      finish_rows_swiglu<Config>(p, work, x_row, first, rows, state, sum_of);
    else
      finish_rows<Config>(p, work, x_row, first, rows, state, sum_of);
  };
#pragma unroll
  for (int slab = 0; slab < Config::kTileM / Config::kSlabRows; ++slab) {
    constexpr int kOfWarp = Config::kTileM / Config::kWarps.m / Config::kSlabRows;
    if (slab > 0) __syncthreads();
    if (Config::kWarps.m == 1 || at.m == slab / kOfWarp)
      store_sums<Config>(d, slab % kOfWarp, sums, at);
    __syncthreads();
    const int first = slab * Config::kSlabRows;
    if (Config::kMostSplit > 1 && p.split_k > 1)
      store_partials<Config>(p, work, first, Config::kSlabRows, SumOfParts<Config>{sums});
    else
      finish(first, Config::kSlabRows, SumOfParts<Config>{sums});
  }
  if constexpr (Config::kMostSplit > 1)
    if (p.split_k > 1 && is_last_block<Config>(p, state))
      finish(0, Config::kTileM, SumOfBlocks<Config>{p});
}

}  // namespace nvfp4::cuda::sm80
