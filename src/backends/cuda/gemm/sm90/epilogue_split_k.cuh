#pragma once

#include "backends/cuda/gemm/sm90/epilogue.cuh"
#include "backends/cuda/gemm/sm90/epilogue_swiglu.cuh"
#include "backends/cuda/ptx/ptx.cuh"

/// Adds up parts of K in shared memory: those of a block's warpgroups and of a cluster's blocks.
/// Then it stores the sums or their SwiGLU.
namespace nvfp4::cuda {

inline constexpr int kPartsBarrier = 7;  ///< barrier of the consumer warpgroups

/// The barriers of a block for the others of its cluster. Each expects one arrival from each block.
struct SplitKState {
  std::uint64_t there, read;
};

/// The sums that a thread adds up: four adjacent rows of W, and every kAtOnce-th row of x from
/// `first` on.
template <class Config, int kSplits, int kAcross>
struct Turns {
  static constexpr int kAtOnce = Config::kConsumers / kAcross * kSplits;
  static constexpr int kCount = (Config::kTileM + kAtOnce - 1) / kAtOnce;
  int first;  ///< token of the tile

  __device__ __forceinline__ explicit Turns(int rank)
      : first(static_cast<int>(threadIdx.x) / kAcross * kSplits + rank) {}
  __device__ __forceinline__ int token(int turn) const { return first + turn * kAtOnce; }
};

template <class Config, int kSums>
__device__ __forceinline__ void store_partials(const float (&d)[kSums], float* partials,
                                               int n_group, int k_group, int warp, int lane) {
  partials += k_group * Config::kTileM * Config::kPartialStride + n_group * 64;
#pragma unroll
  for (int j = 0; j < kSums / 4; ++j)
#pragma unroll
    for (int i = 0; i < 4; ++i)
      partials[(j * 8 + lane % 4 * 2 + i % 2) * Config::kPartialStride + warp * 16 + lane / 4 +
               i / 2 * 8] = d[j * 4 + i];
}

/// Arrives at the barrier of each block, after the consumer warpgroups have synchronized.
template <class Config, int kSplits>
__device__ __forceinline__ void arrive_everywhere(std::uint32_t bar) {
  if constexpr (ptx::arrivals_of_group(Config::kConsumers) > 1)
    for (int rank = 0; rank < kSplits; ++rank) ptx::mbarrier_arrive_cluster(bar, rank);
  else if (threadIdx.x < kSplits)
    ptx::mbarrier_arrive_cluster(bar, static_cast<int>(threadIdx.x));
}

/// The addresses of the sums of each rank's block.
template <class Config, int kSplits>
class Partials {
 public:
  __device__ __forceinline__ explicit Partials(std::uint32_t partials) {
#pragma unroll
    for (int r = 0; r < kSplits; ++r)
      of_rank_[r] = kSplits == 1 ? partials : ptx::mapa_shared_cluster(partials, r);
  }
  /// Returns rows `row` to `row` + 3 of token t of the tile, added in the order of K.
  __device__ __forceinline__ float4 sum(int t, int row) {
    float4 sum = {0, 0, 0, 0};
#pragma unroll
    for (int r = 0; r < kSplits; ++r)
#pragma unroll
      for (int depth = 0; depth < Config::kKGroups; ++depth) {
        const int at = (depth * Config::kTileM + t) * Config::kPartialStride + row;
        const std::uint32_t from = of_rank_[r] + static_cast<std::uint32_t>(at * 4);
        const float4 v = kSplits == 1 ? ptx::ld_shared<float4>(from) : ptx::ld_shared_cluster(from);
        sum = {sum.x + v.x, sum.y + v.y, sum.z + v.z, sum.w + v.w};
      }
    read_ ^= __float_as_uint(sum.x) ^ __float_as_uint(sum.y) ^ __float_as_uint(sum.z) ^
             __float_as_uint(sum.w);
    return sum;
  }
  /// Ends the reads: the other blocks may exit.
  __device__ __forceinline__ void release(SplitKState& state) const {
    if constexpr (kSplits > 1) {
      const std::uint32_t zero =
          ptx::named_barrier_sync_after(kPartsBarrier, Config::kConsumers, read_);
      arrive_everywhere<Config, kSplits>(ptx::cvta_shared(&state.read) + zero);
    }
  }

 private:
  std::uint32_t of_rank_[kSplits];
  std::uint32_t read_ = 0;  ///< depends on all values that were read
};

/// Waits until the other blocks of the cluster have stored their sums in shared memory.
template <class Config, int kSplits>
__device__ __forceinline__ void share_partials(SplitKState& state) {
  ptx::named_barrier_sync(kPartsBarrier, Config::kConsumers);
  if constexpr (kSplits > 1) {
    const std::uint32_t there = ptx::cvta_shared(&state.there);
    arrive_everywhere<Config, kSplits>(there);
    ptx::mbarrier_wait_parity_cluster(there, 0);
  }
}
/// Waits until the other blocks have read this block's sums, so that it may exit.
template <int kSplits>
__device__ __forceinline__ void await_readers(SplitKState& state) {
  if constexpr (kSplits > 1)
    if (threadIdx.x < 32) ptx::mbarrier_wait_parity_cluster(ptx::cvta_shared(&state.read), 0);
}

/// Adds up the tokens of this block's turns.
template <class Config, int kSplits>
__device__ __forceinline__ void reduce_partials(const KernelArguments& p, const WorkTile& work,
                                                std::uint32_t ring, int rank, SplitKState& state) {
  constexpr int kAcross = Config::kTileN / 4;  // threads along a row of x
  using Taken = Turns<Config, kSplits, kAcross>;
  const Taken turns(rank);
  const int row = static_cast<int>(threadIdx.x) % kAcross * 4;
  const int out_row = work.n_tile * Config::kTileN + row;
  const int tokens = out_row < p.n ? min(work.m_end - work.m, Config::kTileM) : 0;
  LinearCombination finish[4];
  combinations_of_four(p, work.group, out_row, finish);
  // See epilogue_store_16bit(): a short code path where all properties are known.
  const bool plain = p.out_type == Config::kType && p.wide_stores && !p.x_global_per_row;
  const float x = plain ? x_global_of(p, 0) : 1.0f;
  share_partials<Config, kSplits>(state);
  Partials<Config, kSplits> partials(ring);
  if (!plain) {
#pragma unroll 1
    for (int t = turns.first; t < tokens; t += Taken::kAtOnce)
      store_four(p, work, work.m + t, out_row, partials.sum(t, row), finish);
    return partials.release(state);
  }
  float4 sums[Taken::kCount];
#pragma unroll
  for (int i = 0; i < Taken::kCount; ++i)
    sums[i] = partials.sum(min(turns.token(i), Config::kTileM - 1), row);
  partials.release(state);
  std::uint16_t* out = static_cast<std::uint16_t*>(p.out) + (work.m + turns.first) * p.out_stride +
                       static_cast<std::int64_t>(work.group) * p.out_group_cols + out_row;
  const std::int64_t step = p.out_stride * Taken::kAtOnce;
  const auto pack = [](float low, float high) {
    return Config::kType == DType::bf16 ? pack_bf16(low, high) : pack_f16(low, high);
  };
#pragma unroll
  for (int i = 0; i < Taken::kCount; ++i) {
    const float4& v = sums[i];
    if (turns.token(i) < tokens)
      *reinterpret_cast<uint2*>(out) = {pack(finish[0](v.x, x), finish[1](v.y, x)),
                                        pack(finish[2](v.z, x), finish[3](v.w, x))};
    out += step;
  }
}

/// Adds up gate and up, then computes SwiGLU.
template <class Config, int kSplits>
__device__ __forceinline__ void reduce_swiglu(const KernelArguments& p, const WorkTile& work,
                                              std::uint32_t ring, int rank, SplitKState& state) {
  constexpr int kAcross = Config::kTileN / 8;  // threads along a row of x
  using Taken = Turns<Config, kSplits, kAcross>;
  const Taken turns(rank);
  const int output = static_cast<int>(threadIdx.x) % kAcross * 4;
  const int row = output / 8 * 16 + output % 8;  // row of gate
  const int column = work.n_tile * (Config::kTileN / 2) + output;
  const int tokens = column < p.n / 2 ? min(work.m_end - work.m, Config::kTileM) : 0;
  SwigluCombination finish[4];
#pragma unroll
  for (int i = 0; i < 4; ++i)
    finish[i] = SwigluCombination(p, work.group, work.n_tile * Config::kTileN + row + i);
  share_partials<Config, kSplits>(state);
  Partials<Config, kSplits> partials(ring);
#pragma unroll 1
  for (int i = 0; i < Taken::kCount; ++i) {
    const int t = turns.token(i), token = work.m + t;
    const bool inside = t < tokens;
    float v[4] = {};
    if (inside) {
      const float4 gate = partials.sum(t, row), up = partials.sum(t, row + 8);
      const float x = x_global_of(p, token);
      v[0] = finish[0](p, gate.x, up.x, x), v[1] = finish[1](p, gate.y, up.y, x);
      v[2] = finish[2](p, gate.z, up.z, x), v[3] = finish[3](p, gate.w, up.w, x);
    }
    finish_outputs(p, token, column, v, inside);
  }
  partials.release(state);
}

/// Stores the tile. All consumers have their sums in registers; the ring is free and no load is in
/// flight. The block ends after this call.
template <class Config, int kSums>
__device__ __forceinline__ void epilogue_split_k(const KernelArguments& p, const WorkTile& work,
                                                 const float (&d)[kSums], std::uint8_t* ring,
                                                 int rank, SplitKState& state, int n_group,
                                                 int k_group, int warp, int lane) {
  ptx::named_barrier_sync(kPartsBarrier, Config::kConsumers);
  store_partials<Config>(d, reinterpret_cast<float*>(ring), n_group, k_group, warp, lane);
  const auto reduce = [&](auto splits) {
    constexpr int kSplits = decltype(splits)::value;
    if constexpr (Config::kSwiglu)
      reduce_swiglu<Config, kSplits>(p, work, ptx::cvta_shared(ring), rank, state);
    else
      reduce_partials<Config, kSplits>(p, work, ptx::cvta_shared(ring), rank, state);
    await_readers<kSplits>(state);
  };
  if (p.split_k == 2) return reduce(std::integral_constant<int, 2>{});
  if constexpr (Config::kManySplits) {
    if (p.split_k == 4) return reduce(std::integral_constant<int, 4>{});
    if (p.split_k == 8) return reduce(std::integral_constant<int, 8>{});
  }
  if constexpr (Config::kSingleTile) reduce(std::integral_constant<int, 1>{});
}

}  // namespace nvfp4::cuda
