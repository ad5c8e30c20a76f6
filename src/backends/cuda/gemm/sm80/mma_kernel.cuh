#pragma once

#include "backends/cuda/device/routing.cuh"
#include "backends/cuda/gemm/sm80/epilogue.cuh"
#include "backends/cuda/gemm/sm80/mainloop.cuh"
#include "backends/cuda/gemm/sm80/pipeline.cuh"
#include "backends/cuda/ptx/griddepcontrol.cuh"

/// Computes outᵀ = W · xᵀ. A block has a tile, or a part of its K: stages by cp.async, mma.sync, an
/// epilogue through shared memory. Every GPU since sm_80 has these instructions. With dependent
/// launch, weights are loaded while the previous kernel still runs.
namespace nvfp4::cuda::sm80 {

/// Computes the row of out and of x of a block. Returns false if the routing's id names no group.
template <class Config>
__device__ __forceinline__ bool place_routed(const KernelArguments& p, WorkTile& work, int& x_row) {
  const int n_tiles = (p.n + Config::kTileN - 1) / Config::kTileN;
  const int row = static_cast<int>(blockIdx.x) / n_tiles;
  const int token = row / static_cast<int>(p.routing.top_k);
  const int choice = row - token * static_cast<int>(p.routing.top_k);
  work.n_tile = static_cast<int>(blockIdx.x) - row * n_tiles;
  work.m = row;
  work.m_end = row + 1;
  work.group = expert_at(p.routing, token, choice, p.groups);
  x_row = row / p.rows_of_token;
  return work.group >= 0;
}

/// Reports whether the tile is known only after the previous kernel has ended.
template <class Config>
__device__ __forceinline__ bool waits_for_tile(const KernelArguments& p) {
  return (Config::kRouted || p.ends != nullptr) && !p.ends_settled;
}

/// Computes the tile of a block and its first row of x. `waits` is waits_for_tile(). Returns false
/// if the block has no tile and must exit.
template <class Config>
__device__ __forceinline__ bool find_tile(const KernelArguments& p, typename Config::State& state,
                                          bool waits, WorkTile& work, int& x_row) {
  // Weights do not depend on the previous kernel. Everything that it may have written is read
  // later.
  if (waits) ptx::griddepcontrol_wait();
  bool has_tile = false;
  if constexpr (Config::kRouted) {
    has_tile = place_routed<Config>(p, work, x_row);
  } else {
    TileScheduler<Config, false> scheduler(p, state.scheduler);
    scheduler.count();
    has_tile = scheduler.first(work);
    x_row = work.m;
  }
  if (has_tile) return true;
  ptx::griddepcontrol_wait();
  ptx::griddepcontrol_launch_dependents();
  return false;
}

/// Loads the first stages of x. The last of them includes the epilogue's factors.
template <class Config>
__device__ __forceinline__ void load_first_x(const KernelArguments& p, const WorkTile& work,
                                             int x_row, typename Config::State& state,
                                             XLoader<Config>& x, std::uint32_t ring, int left,
                                             int step) {
#pragma unroll
  for (int i = 0; i < Config::kStages - 1; ++i) {
    if (left - i * step > 0) x.load(ring + i * Config::kStageBytes);
    if (i < Config::kStages - 2) ptx::cp_async_commit_group();
  }
  if constexpr (Config::kBringsFactors) {
    WorkTile of_x = work;
    of_x.m = x_row;
    of_x.m_end = x_row + work.m_end - work.m;
    prefetch_epilogue_factors<Config>(p, of_x, state);
  }
  ptx::cp_async_commit_group();
}

/// Returns the stage after `stage` in the ring.
template <class Config>
__device__ __forceinline__ std::uint32_t next_stage(std::uint32_t stage, std::uint32_t ring) {
  stage += Config::kStageBytes;
  return stage == ring + Config::kRingBytes ? ring : stage;
}

/// Multiplies the block's part of K. After `settle` the previous kernel's writes are visible.
template <class Config, class Settle>
__device__ __forceinline__ void mainloop(const KernelArguments& p, const WorkTile& work, int x_row,
                                         typename Config::State& state, std::uint32_t ring,
                                         const WarpPlace<Config>& at, Sums<Config>& d,
                                         const Settle& settle) {
  constexpr int kStages = Config::kStages;
  const KSlice<Config> slice(p, at.part);
  int left = p.chunks - slice.first;  // chunks from the next stage on
  WeightsLoader<Config> weights(p, work, slice, at.part);
#pragma unroll
  for (int i = 0; i < kStages - 1; ++i)
    weights.load(ring + i * Config::kStageBytes, left - i * slice.step);
  settle();
  XLoader<Config> x(p, work, x_row, slice, at.part);
  load_first_x<Config>(p, work, x_row, state, x, ring, left, slice.step);
  const LaneAddresses<Config> addresses(at);
  const Shift16 shift{p.sixteen};
  std::uint32_t read = ring, write = ring + (kStages - 1) * Config::kStageBytes;
#pragma unroll 1
  for (; left > 0; left -= slice.step) {
    ptx::cp_async_wait_group<kStages - 2>();
    part_barrier<Config>(at.part);
    const int ahead = left - (kStages - 1) * slice.step;
    if (ahead > 0) {
      weights.load(write, ahead);
      x.load(write);
    }
    ptx::cp_async_commit_group();
    multiply_chunk<Config>(d, addresses, read, shift);
    read = next_stage<Config>(read, ring);
    write = next_stage<Config>(write, ring);
  }
}

/// Same as mainloop(), with W in registers: see is_direct().
template <class Config, class Settle>
__device__ __forceinline__ void mainloop_direct(const KernelArguments& p, const WorkTile& work,
                                                int x_row, typename Config::State& state,
                                                std::uint32_t ring, const WarpPlace<Config>& at,
                                                Sums<Config>& d, const Settle& settle) {
  constexpr int kStages = Config::kStages;
  constexpr DType kType = Config::kType;
  const KSlice<Config> slice(p, 0);
  const Shift16 shift{p.sixteen};
  int left = p.chunks - slice.first;
  DirectLoader<Config> weights(p, work, slice, at.n, at.lane);
  LaneChunk chunks[2][2] = {};
  weights.load(chunks[0], left);
  weights.load(chunks[1], left - slice.step);
  settle();
  XLoader<Config> x(p, work, x_row, slice, 0);
  load_first_x<Config>(p, work, x_row, state, x, ring, left, slice.step);
  const std::uint32_t x_of_lane = LaneAddresses<Config>(at).x;
  std::uint32_t read = ring, write = ring + (kStages - 1) * Config::kStageBytes;
  HalfFragments a[2];
  Decoder<kType>(chunks[0], 0, shift, a[0]).all();
  const auto run_stage = [&](LaneChunk(&now)[2], LaneChunk(&next)[2]) {
    ptx::cp_async_wait_group<kStages - 2>();
    __syncthreads();
    if (left > (kStages - 1) * slice.step) x.load(write);
    ptx::cp_async_commit_group();
    multiply_half<Config>(d, a[0], read + x_of_lane, Decoder<kType>(now, 1, shift, a[1]));
    weights.load(now, left - 2 * slice.step);
    multiply_half<Config>(d, a[1], (read + x_of_lane) ^ 64u, Decoder<kType>(next, 0, shift, a[0]));
    read = next_stage<Config>(read, ring);
    write = next_stage<Config>(write, ring);
    left -= slice.step;
  };
#pragma unroll 1
  while (left > 0) {
    run_stage(chunks[0], chunks[1]);
    if (left > 0) run_stage(chunks[1], chunks[0]);
  }
}

template <class Config>
__global__ void __launch_bounds__(Config::kThreads, Config::kBlocks)
    mma_gemm_kernel(const __grid_constant__ KernelArguments p) {
  extern __shared__ __align__(128) std::uint8_t memory[];
  auto& state = *reinterpret_cast<typename Config::State*>(memory + Config::kStateOffset);
  const bool waits_first = waits_for_tile<Config>(p);
  WorkTile work;
  int x_row = 0;
  if (!find_tile<Config>(p, state, waits_first, work, x_row)) return;

  const std::uint32_t ring = ptx::cvta_shared(memory);
  const WarpPlace<Config> at;
  const auto settle = [&] {
    if (!waits_first) ptx::griddepcontrol_wait();
    ptx::griddepcontrol_launch_dependents();
  };
  Sums<Config> d = {};
  if constexpr (Config::kDirect)
    mainloop_direct<Config>(p, work, x_row, state, ring, at, d, settle);
  else
    mainloop<Config>(p, work, x_row, state, ring, at, d, settle);
  ptx::cp_async_wait_group<0>();
  __syncthreads();
  epilogue<Config>(p, work, x_row, state, d, reinterpret_cast<float*>(memory), at);
}

}  // namespace nvfp4::cuda::sm80
