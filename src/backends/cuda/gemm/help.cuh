#pragma once

#include "backends/cuda/gemm/async.cuh"
#include "backends/cuda/gemm/load.cuh"
#include "backends/cuda/gemm/problem.h"
#include "backends/cuda/gemm/schedule.cuh"

/// Blocks of multiprocessors that would have no tile take a slice from the end of the depth of each
/// of the others: a helper those of every so many-th block. Sums go through global memory as lanes
/// have them, and are added in a fixed order: the same bits every time.
///
/// A block waits for its helper, which waits for no other block of the kernel and comes before all
/// that do in the grid, so that it starts before them: GPUs start blocks in the order of their
/// index, though CUDA does not promise it.
namespace nvfp4::cuda {

/// Barriers, each of one phase.
struct HelpState {
  std::uint64_t stored[kMostSlicesOfHelper];  ///< sums of a slice, by each warp
  std::uint64_t free;                         ///< the place of a block's slice
};
template <class Config>
__device__ __forceinline__ void init_help(HelpState& state) {
  for (std::uint64_t& stored : state.stored)
    barrier_init(shared_address(&stored), Config::kConsumers / 32);
  barrier_init(shared_address(&state.free), 1);
}

/// The stages that a block keeps, or those of all slices that a helper has: helpers are as many
/// times the splits, so that blocks that it helps have the same rank.
template <class Config>
__device__ __forceinline__ Depth depth_of(const FragmentGemm& p) {
  Depth depth(p, Config::kStageChunks);
  if constexpr (!Config::kHelped) return depth;
  const int kept = depth.last - p.help;
  depth.first = is_helper(p) ? kept : depth.first;
  depth.last = is_helper(p) ? depth.last : kept;
  // All are whole; said so, ptxas would place the products of the loop worse.
  depth.whole = is_helper(p) ? p.help : depth.whole - p.help;
  return depth;
}

/// Floats of a slice, in the order of its threads.
template <class Config>
inline constexpr int kSliceSums = Config::kTokens * 64 * Config::kWarpgroups;

template <class Config>
__device__ __forceinline__ float* sums_of(const FragmentGemm& p, int block) {
  return p.help_sums + static_cast<std::int64_t>(block) * kSliceSums<Config>;
}

/// A helper's sums for a block, all warpgroups of it.
template <class Config, int kSums>
__device__ __forceinline__ void store_slice(const FragmentGemm& p, int block,
                                            const float (&d)[kSums], std::uint64_t& stored,
                                            int warpgroup) {
  const int thread = static_cast<int>(threadIdx.x) % 128;
  auto* to =
      reinterpret_cast<float4*>(sums_of<Config>(p, block)) + warpgroup * (kSums / 4 * 128) + thread;
#pragma unroll
  for (int i = 0; i < kSums / 4; ++i)
    __stcg(to + i * 128, make_float4(d[i * 4], d[i * 4 + 1], d[i * 4 + 2], d[i * 4 + 3]));
  __syncwarp();
  if (thread % 32 == 0) barrier_arrive(shared_address(&stored));
}

/// One thread tells the others when sums are there: to wait until they are would take warpgroups
/// longer than to store them.
template <class Config>
__device__ __forceinline__ void announce_slices(const FragmentGemm& p, HelpState& state) {
  const std::uint64_t* stored = state.stored;
  const int blocks = static_cast<int>(gridDim.x) - p.helpers;
  for (int block = static_cast<int>(blockIdx.x); block < blocks; block += p.helpers, ++stored) {
    barrier_wait(shared_address(stored), 0);
    add_released(p.help_flags + block, 1);
  }
}

/// Where the slice of a block is among its stages in the ring: in the place of stage `first`,
/// before the last ones, so that it is on its way while they are and none waits for it.
template <class Config>
struct SlicePlace {
  int first;

  __device__ __forceinline__ SlicePlace(int stages, bool helps)
      : first(helps ? 1 << 30 : round_up(max(0, stages - (Config::kStages - 1)), 2)) {}
  __device__ __forceinline__ int of_stage(int i) const { return i < first ? i : i + 1; }
  __device__ __forceinline__ int slot() const { return first % Config::kStages; }
  /// How often the slot was filled before, odd or even.
  __device__ __forceinline__ std::uint32_t phase() const {
    return static_cast<std::uint32_t>(first / Config::kStages) & 1;
  }
};

/// One thread brings the sums of a block's slice to shared memory, where a stage of x was.
template <class Config>
__device__ __forceinline__ void load_slice(const FragmentGemm& p, const SlicePlace<Config>& place,
                                           HelpState& state, std::uint32_t x_ring,
                                           std::uint32_t full) {
  constexpr std::uint32_t kBytes = kSliceSums<Config> * 4;
  static_assert(kBytes <= Config::kXBytes);
  wait_for_kernel_before();  // the flags may be its
  const int block = static_cast<int>(blockIdx.x) - p.helpers;
  std::uint32_t* const flag = p.help_flags + block;
  // To acquire clears the L1 cache: once is enough.
  while (load_relaxed(flag) == 0) __nanosleep(32);
  load_acquired(flag);
  *flag = 0;  // for the next product
  written_for_global_copies();
  barrier_wait(shared_address(&state.free), 0);
  const std::uint32_t bar = full + place.slot() * 8;
  barrier_expect(bar, kBytes);
  load_bulk(x_ring + place.slot() * Config::kXBytes, sums_of<Config>(p, block), kBytes, bar,
            kEvictFirst);
}

/// And all add them to their own.
template <int kSums>
__device__ __forceinline__ void add_slice(float (&d)[kSums], std::uint32_t from, int warpgroup) {
  from += (warpgroup * (kSums / 4 * 128) + static_cast<int>(threadIdx.x) % 128) * 16;
#pragma unroll
  for (int i = 0; i < kSums / 4; ++i) {
    const auto v = load_shared<float4>(from + i * 128 * 16);
    d[i * 4] += v.x, d[i * 4 + 1] += v.y, d[i * 4 + 2] += v.z, d[i * 4 + 3] += v.w;
  }
}

}  // namespace nvfp4::cuda
