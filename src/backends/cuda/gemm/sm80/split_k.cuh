#pragma once

#include "backends/cuda/gemm/arguments.h"
#include "backends/cuda/gemm/sm80/mma_config.cuh"

/// Blocks that share K leave their sums in the workspace, [tile][block][row of x][row of W]; who
/// comes last adds up those of all, in the order of the blocks: the same bits every time. No block
/// waits for another.
namespace nvfp4::cuda::sm80 {

template <class Config>
__device__ __forceinline__ int tile_of_block(const GemmArguments& p) {
  return static_cast<int>(blockIdx.x) >> log2_split_k(p);
}
/// Of a block of this tile.
template <class Config>
__device__ __forceinline__ float* partials_of(const GemmArguments& p, int block) {
  return p.stream_k_sums +
         (static_cast<std::int64_t>(tile_of_block<Config>(p)) * p.split_k + block) *
             (Config::kTileM * Config::kTileN);
}

/// Four neighbouring rows of W, of a row of x.
template <class Config>
struct SumOfBlocks {
  const GemmArguments& p;

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

/// All threads of the block, after their sums are stored: whether it is the last one of its tile.
template <class Config>
__device__ __forceinline__ bool is_last_block(const GemmArguments& p,
                                              typename Config::State& state) {
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) {
    std::uint32_t* const counter = p.stream_k_flags + tile_of_block<Config>(p);
    const bool is_last = atomicAdd(counter, 1u) + 1 == static_cast<std::uint32_t>(p.split_k);
    if (is_last) *counter = 0;  // for the next product
    state.is_last = is_last;
    __threadfence();
  }
  __syncthreads();
  return state.is_last;
}

}  // namespace nvfp4::cuda::sm80
