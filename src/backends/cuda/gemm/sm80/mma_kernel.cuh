#pragma once

#include "backends/cuda/device/routing.cuh"
#include "backends/cuda/gemm/sm80/epilogue.cuh"
#include "backends/cuda/gemm/sm80/mainloop.cuh"
#include "backends/cuda/gemm/sm80/pipeline.cuh"
#include "backends/cuda/ptx/griddepcontrol.cuh"

/// outᵀ = W · xᵀ, a tile for each block: stages by cp.async, mma.sync, an epilogue through shared
/// memory. Instructions that every GPU from sm_80 on has; where there is dependent launch, weights
/// are brought while the kernel before still runs.
namespace nvfp4::cuda::sm80 {

/// Which row of out a block of a routed product has, and of x. False: its id names no group.
template <class Config>
__device__ __forceinline__ bool place_routed(const GemmArguments& p, WorkTile& work, int& x_row) {
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

template <class Config>
__global__ void __launch_bounds__(Config::kThreads, Config::kBlocks)
    mma_gemm_kernel(const __grid_constant__ GemmArguments p) {
  extern __shared__ __align__(128) std::uint8_t memory[];
  constexpr int kStages = Config::kStages, kParts = Config::kParts;
  auto& state = *reinterpret_cast<typename Config::State*>(memory + Config::kStateOffset);
  // The weights do not depend on the kernel before; all that it may have written does.
  const bool waits_first = (Config::kRouted || p.ends != nullptr) && !p.ends_settled;
  if (waits_first) ptx::griddepcontrol_wait();
  WorkTile work;
  int x_row = 0;
  bool has_tile = false;
  if constexpr (Config::kRouted) {
    has_tile = place_routed<Config>(p, work, x_row);
  } else {
    TileScheduler<Config, false> scheduler(p, state.scheduler);
    scheduler.count();
    has_tile = scheduler.first(work);
    x_row = work.m;
  }
  if (!has_tile) {
    ptx::griddepcontrol_wait();
    ptx::griddepcontrol_launch_dependents();
    return;
  }

  const std::uint32_t ring = ptx::cvta_shared(memory);
  WeightsLoader<Config> weights(p, work);
#pragma unroll
  for (int i = 0; i < kStages - 1; ++i)
    weights.load(ring + i * Config::kStageBytes, p.chunks - i * kParts);
  if (!waits_first) ptx::griddepcontrol_wait();
  ptx::griddepcontrol_launch_dependents();
  XLoader<Config> x(p, work, x_row);
#pragma unroll
  for (int i = 0; i < kStages - 1; ++i) {
    if (i * kParts < p.chunks) x.load(ring + i * Config::kStageBytes);
    if (i < kStages - 2) ptx::cp_async_commit_group();
  }
  if constexpr (Config::kBringsFactors) {
    WorkTile of_x = work;
    of_x.m = x_row;
    of_x.m_end = x_row + work.m_end - work.m;
    prefetch_epilogue_factors<Config>(p, of_x, state);
  }
  ptx::cp_async_commit_group();

  const WarpPlace<Config> at;
  const LaneAddresses<Config> addresses(at);
  const Shift16 shift{p.sixteen};
  Sums<Config> d[Config::kSets] = {};
  std::uint32_t read = ring, write = ring + (kStages - 1) * Config::kStageBytes;
  const auto next = [&](std::uint32_t stage) {
    stage += Config::kStageBytes;
    return stage == ring + Config::kRingBytes ? ring : stage;
  };
  int left = p.chunks;
  const auto run_stage = [&](Sums<Config>& sums) {
    ptx::cp_async_wait_group<kStages - 2>();
    __syncthreads();  // the stage is there for all, and the one before it has been read
    const int ahead = left - (kStages - 1) * kParts;
    if (ahead > 0) {
      weights.load(write, ahead);
      x.load(write);
    }
    ptx::cp_async_commit_group();
    if (kParts == 1 || at.part < left) multiply_chunk<Config>(sums, addresses, read, shift);
    read = next(read);
    write = next(write);
    left -= kParts;
  };
#pragma unroll 1
  while (left > 0) {
    run_stage(d[0]);
    if constexpr (Config::kSets == 2)
      if (left > 0) run_stage(d[1]);
  }
  if constexpr (Config::kSets == 2)
#pragma unroll
    for (int i = 0; i < 4; ++i) d[0][0][0][i] += d[1][0][0][i];
  ptx::cp_async_wait_group<0>();
  __syncthreads();
  epilogue<Config>(p, work, x_row, state, d[0], reinterpret_cast<float*>(memory), at);
}

}  // namespace nvfp4::cuda::sm80
