#pragma once

#include "backends/cuda/gemm/arguments.h"
#include "backends/cuda/gemm/sm80/mma_config.cuh"

/// Blocks that share K store their sums in the workspace, [tile][block][row of x][row of W]. The
/// last block of a tile adds them in the order of the blocks, so the bits are reproducible. No
/// block waits for another.
namespace nvfp4::cuda::sm80 {

template <class Config>
__device__ __forceinline__ int tile_of_block(const KernelArguments& p) {
  return static_cast<int>(blockIdx.x) >> log2_split_k(p);
}
/// Returns the sums of a block of this tile.
template <class Config>
__device__ __forceinline__ float* partials_of(const KernelArguments& p, int block) {
  return p.stream_k_sums +
         (static_cast<std::int64_t>(tile_of_block<Config>(p)) * p.split_k + block) *
             (Config::kTileM * Config::kTileN);
}

/// Adds up four adjacent rows of W of a row of x.
template <class Config>
struct SumOfBlocks {
  const KernelArguments& p;

  __device__ __forceinline__ float4 operator()(int t, int row) const {
    const float* from = partials_of<Config>(p, 0) + t * Config::kTileN + row;
    float4 sum = __ldcg(reinterpret_cast<const float4*>(from));
    for (int block = 1; block < p.split_k; ++block) {
      from += Config::kTileM * Config::kTileN;
      const float4 v = __ldcg(reinterpret_cast<const float4*>(from));
      sum = {sum.x + v.x, sum.y + v.y, sum.z + v.z, sum.w + v.w};
    }
    return sum;
  }
};

/// Reports whether this block is the last one of its tile. All threads call it after their sums are
/// stored.
template <class Config>
__device__ __forceinline__ bool is_last_block(const KernelArguments& p,
                                              typename Config::State& state) {
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) {
    std::uint32_t* const counter = p.stream_k_flags + tile_of_block<Config>(p);
    const bool is_last = atomicAdd(counter, 1u) + 1 == static_cast<std::uint32_t>(p.split_k);
    if (is_last) *counter = 0;  // zero for the next GEMM
    state.is_last = is_last;
    __threadfence();
  }
  __syncthreads();
  return state.is_last;
}

}  // namespace nvfp4::cuda::sm80
