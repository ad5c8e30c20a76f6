#pragma once

#include "backends/cuda/gemm/epilogue_values.cuh"
#include "backends/cuda/gemm/fragment_layout.h"
#include "backends/cuda/ptx/cp_async.cuh"
#include "backends/cuda/ptx/memory.cuh"

/// Copies the epilogue's factors of a small-M tile to shared memory. `State` has w_global and bias
/// of kTileN floats, x_global of kTileM, and alpha.
namespace nvfp4::cuda {

/// Starts copies of all factors and biases of a tile, so that its end does not wait for them.
template <class Config, class State>
__device__ __forceinline__ void prefetch_epilogue_factors(const KernelArguments& p,
                                                          const WorkTile& work, State& state) {
  const int thread = static_cast<int>(threadIdx.x);
  if (thread < Config::kTileN) {
    int row = min(work.n_tile * Config::kTileN + thread, p.n - 1);
    if constexpr (Config::kSwiglu) row = static_cast<int>(gate_up_row(row, p.n / 2, p.interleave));
    const std::int64_t at = static_cast<std::int64_t>(work.group) * p.n + row;
    ptx::cp_async_4(ptx::cvta_shared(state.w_global + thread),
                    p.w_global + (p.w_global_per_row ? at : work.group));
    if (p.bias != nullptr) ptx::cp_async_4(ptx::cvta_shared(state.bias + thread), p.bias + at);
  } else if (thread < Config::kTileN + Config::kTileM) {
    const int t = thread - Config::kTileN, token = min(work.m + t, work.m_end - 1);
    if (p.x_global != nullptr)
      ptx::cp_async_4(ptx::cvta_shared(state.x_global + t),
                      p.x_global + (p.x_global_per_row ? token : 0));
  } else if (thread == Config::kTileN + Config::kTileM) {
    if (p.alpha != nullptr) ptx::cp_async_4(ptx::cvta_shared(&state.alpha), p.alpha + work.group);
  }
}

/// Returns the combination for row `row` of the tile.
template <class State>
__device__ __forceinline__ LinearCombination combination_of(const KernelArguments& p,
                                                            const State& state, int row) {
  return {p, p.alpha == nullptr ? 1.0f : state.alpha, state.w_global[row],
          p.bias == nullptr ? 0.0f : state.bias[row]};
}

}  // namespace nvfp4::cuda
