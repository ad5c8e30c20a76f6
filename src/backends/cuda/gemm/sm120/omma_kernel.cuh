#pragma once

#include "backends/cuda/gemm/sm120/mainloop.cuh"
#include "backends/cuda/gemm/sm80/mma_kernel.cuh"
#include "backends/cuda/ptx/griddepcontrol.cuh"

/// Computes outᵀ = W · xᵀ, both NVFP4. A block has a tile, or a part of its K. Stages, tiles,
/// split-K and epilogues are those of sm80; Config::Product multiplies.
namespace nvfp4::cuda::sm120 {

/// Multiplies the block's part of K. After `settle` the previous kernel's writes are visible.
template <class Config, class Settle>
__device__ __forceinline__ void mainloop(const QuantizedX& x, const KernelArguments& p,
                                         const WorkTile& work, int x_row,
                                         typename Config::State& state, std::uint32_t ring,
                                         const sm80::WarpPlace<Config>& at, sm80::Sums<Config>& d,
                                         const Settle& settle) {
  constexpr int kStages = Config::kStages;
  const sm80::KSlice<Config> slice(p, at.part);
  int left = p.chunks - slice.first;  // chunks from the next stage on
  sm80::WeightsLoader<Config> weights(p, work, slice, at.part);
#pragma unroll
  for (int i = 0; i < kStages - 1; ++i)
    weights.load(ring + i * Config::kStageBytes, left - i * slice.step);
  settle();
  XLoader<Config> x_loader(x, p, work, x_row, slice, at.part);
#pragma unroll
  for (int i = 0; i < kStages - 1; ++i) {
    if (left - i * slice.step > 0) x_loader.load(ring + i * Config::kStageBytes);
    if (i < kStages - 2) ptx::cp_async_commit_group();
  }
  if constexpr (Config::kBringsFactors) {
    WorkTile of_x = work;
    of_x.m = x_row;
    of_x.m_end = x_row + work.m_end - work.m;
    prefetch_epilogue_factors<Config>(p, of_x, state);
  }
  ptx::cp_async_commit_group();
  const LaneAddresses<Config> addresses(at);
  const LanePairs lane(at.lane);
  std::uint32_t read = ring, write = ring + (kStages - 1) * Config::kStageBytes;
#pragma unroll 1
  for (; left > 0; left -= slice.step) {
    ptx::cp_async_wait_group<kStages - 2>();
    sm80::part_barrier<Config>(at.part);
    const int ahead = left - (kStages - 1) * slice.step;
    if (ahead > 0) {
      weights.load(write, ahead);
      x_loader.load(write);
    }
    ptx::cp_async_commit_group();
    multiply_chunk<Config>(d, addresses, lane, read);
    read = sm80::next_stage<Config>(read, ring);
    write = sm80::next_stage<Config>(write, ring);
  }
}

/// Computes the tile of a block. `memory` is shared memory of Config::kSharedBytes.
template <class Config>
__device__ __forceinline__ void multiply_tile(const QuantizedX& x, const KernelArguments& p,
                                              std::uint8_t* memory) {
  auto& state = *reinterpret_cast<typename Config::State*>(memory + Config::kStateOffset);
  const bool waits_first = sm80::waits_for_tile<Config>(p);
  WorkTile work;
  int x_row = 0;
  if (!sm80::find_tile<Config>(p, state, waits_first, work, x_row)) return;
  const sm80::WarpPlace<Config> at;
  const auto settle = [&] {
    if (!waits_first) ptx::griddepcontrol_wait();
    ptx::griddepcontrol_launch_dependents();
  };
  sm80::Sums<Config> d = {};
  mainloop<Config>(x, p, work, x_row, state, ptx::cvta_shared(memory), at, d, settle);
  ptx::cp_async_wait_group<0>();
  __syncthreads();
  sm80::epilogue<Config>(p, work, x_row, state, d, reinterpret_cast<float*>(memory), at);
}

template <class Config>
__global__ void __launch_bounds__(Config::kThreads, Config::kBlocks)
    omma_gemm_kernel(const __grid_constant__ QuantizedX x,
                     const __grid_constant__ KernelArguments p) {
  extern __shared__ __align__(128) std::uint8_t memory[];
  multiply_tile<Config>(x, p, memory);
}

}  // namespace nvfp4::cuda::sm120
