#pragma once

#include "backends/cuda/gemm/arguments.h"
#include "backends/cuda/gemm/sm90/kernels.h"
#include "backends/cuda/gemm/sm90/pipeline.cuh"
#include "backends/cuda/gemm/tile_scheduler.cuh"
#include "backends/cuda/ptx/ptx.cuh"

/// Stream-K: multiprocessors without a tile run blocks that take slices from the end of K of the
/// other blocks. A stream-K block serves every stream_k_blocks-th block. Sums pass through the
/// workspace in register order and are added in a fixed order, so the bits are reproducible.
///
/// A block waits for the stream-K block that has its slice. A stream-K block waits for no block and
/// has a lower index in the grid, so it starts first. GPUs start blocks in the order of their
/// index, although CUDA does not guarantee it.
namespace nvfp4::cuda {

/// Barriers with one phase each.
struct StreamKState {
  std::uint64_t stored[kMostTilesOfStreamKBlock];  ///< sums of a slice: each warp arrives
  std::uint64_t free;                              ///< the slot of a block's slice is free
};
template <class Config>
__device__ __forceinline__ void init_stream_k(StreamKState& state) {
  for (std::uint64_t& stored : state.stored)
    ptx::mbarrier_init(ptx::cvta_shared(&stored),
                       Config::kConsumers / 32 * ptx::arrivals_of_group(32));
  ptx::mbarrier_init(ptx::cvta_shared(&state.free), 1);
}

/// Returns the stages that a block keeps, or the stages of a stream-K block's slices. The number of
/// stream-K blocks is a multiple of split_k, so the blocks that a stream-K block serves have the
/// same rank.
template <class Config>
__device__ __forceinline__ KRange k_range_of(const KernelArguments& p) {
  KRange range(p, Config::kStageChunks);
  if constexpr (!Config::kStreamK) return range;
  const int kept = range.last - p.stream_k_steps;
  range.first = is_stream_k_block(p) ? kept : range.first;
  range.last = is_stream_k_block(p) ? range.last : kept;
  // All stages are whole; with that information ptxas would schedule the loop worse.
  range.whole = is_stream_k_block(p) ? p.stream_k_steps : range.whole - p.stream_k_steps;
  return range;
}

/// Number of floats of a slice, in the order of its threads.
template <class Config>
inline constexpr int kStreamKSums = Config::kTileM * 64 * Config::kWarpgroups;

template <class Config>
__device__ __forceinline__ float* stream_k_sums_of(const KernelArguments& p, int block) {
  return p.stream_k_sums + static_cast<std::int64_t>(block) * kStreamKSums<Config>;
}

/// Stores the sums of a slice, by all warpgroups.
template <class Config, int kSums>
__device__ __forceinline__ void stream_k_store(const KernelArguments& p, int block,
                                               const float (&d)[kSums], std::uint64_t& stored,
                                               int warpgroup) {
  const int thread = static_cast<int>(threadIdx.x) % 128;
  auto* to = reinterpret_cast<float4*>(stream_k_sums_of<Config>(p, block)) +
             warpgroup * (kSums / 4 * 128) + thread;
#pragma unroll
  for (int i = 0; i < kSums / 4; ++i)
    __stcg(to + i * 128, make_float4(d[i * 4], d[i * 4 + 1], d[i * 4 + 2], d[i * 4 + 3]));
  __syncwarp();
  if (ptx::arrives_for_group(thread % 32)) ptx::mbarrier_arrive(ptx::cvta_shared(&stored));
}

/// Sets the flags when sums are stored, from one thread. If the warpgroups waited for the stores,
/// it would take longer than the stores.
template <class Config>
__device__ __forceinline__ void stream_k_signal(const KernelArguments& p, StreamKState& state) {
  const std::uint64_t* stored = state.stored;
  const int blocks = static_cast<int>(gridDim.x) - p.stream_k_blocks;
  for (int block = static_cast<int>(blockIdx.x); block < blocks;
       block += p.stream_k_blocks, ++stored) {
    ptx::mbarrier_wait_parity(ptx::cvta_shared(stored), 0);
    ptx::red_release_gpu_add(p.stream_k_flags + block, 1);
  }
}

/// The slot of the slice's sums in the ring: the place of stage `first`, before the last stages.
/// Its copy overlaps with theirs, so that no thread waits for it.
template <class Config>
struct PartialSlot {
  int first;

  __device__ __forceinline__ PartialSlot(int stages, bool is_stream_k)
      : first(is_stream_k ? 1 << 30 : round_up(max(0, stages - (Config::kStages - 1)), 2)) {}
  __device__ __forceinline__ int of_stage(int i) const { return i < first ? i : i + 1; }
  __device__ __forceinline__ int slot() const { return first % Config::kStages; }
  /// Returns the parity of the number of earlier uses of the slot.
  __device__ __forceinline__ std::uint32_t phase() const {
    return static_cast<std::uint32_t>(first / Config::kStages) & 1;
  }
};

/// Copies the sums of a block's slice to shared memory, into a slot of x, from one thread.
template <class Config>
__device__ __forceinline__ void stream_k_load(const KernelArguments& p,
                                              const PartialSlot<Config>& partial,
                                              StreamKState& state, const Ring& ring) {
  constexpr std::uint32_t kBytes = kStreamKSums<Config> * 4;
  static_assert(kBytes <= Config::kXBytes);
  ptx::griddepcontrol_wait();  // the previous kernel may still use the flags
  const int block = static_cast<int>(blockIdx.x) - p.stream_k_blocks;
  std::uint32_t* const flag = p.stream_k_flags + block;
  // An acquire clears the L1 cache, so it is done once.
  while (ptx::ld_relaxed_gpu(flag) == 0) __nanosleep(32);
  ptx::ld_acquire_gpu(flag);
  *flag = 0;  // zero for the next GEMM
  ptx::fence_proxy_async_global();
  ptx::mbarrier_wait_parity(ptx::cvta_shared(&state.free), 0);
  const std::uint32_t bar = ring.full + partial.slot() * 8;
  ptx::mbarrier_arrive_expect_tx(bar, kBytes);
  ptx::cp_async_bulk(ring.x + partial.slot() * Config::kXBytes, stream_k_sums_of<Config>(p, block),
                     kBytes, bar, kEvictFirst);
}

/// Adds the sums of the slice, by all consumer threads.
template <int kSums>
__device__ __forceinline__ void stream_k_add(float (&d)[kSums], std::uint32_t from, int warpgroup) {
  from += (warpgroup * (kSums / 4 * 128) + static_cast<int>(threadIdx.x) % 128) * 16;
#pragma unroll
  for (int i = 0; i < kSums / 4; ++i) {
    const auto v = ptx::ld_shared<float4>(from + i * 128 * 16);
    d[i * 4] += v.x, d[i * 4 + 1] += v.y, d[i * 4 + 2] += v.z, d[i * 4 + 3] += v.w;
  }
}

}  // namespace nvfp4::cuda
