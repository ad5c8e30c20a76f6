#pragma once

#include <cuda.h>

#include "backends/cuda/gemm/arguments.h"
#include "backends/cuda/gemm/fragment_layout.h"
#include "backends/cuda/gemm/tile_scheduler.cuh"
#include "backends/cuda/ptx/ptx.cuh"

/// The ring of stages between the producer and the consumer warpgroups. Each stage has a full and
/// an empty barrier and is filled by TMA.
namespace nvfp4::cuda {

/// The range of K of a block of a cluster, in stages. The last stage may have fewer chunks.
struct KRange {
  int rank, first, last;
  int whole;  ///< number of stages with all chunks

  __device__ KRange(const KernelArguments& p, int stage_chunks) {
    const int stages = (p.chunks + stage_chunks - 1) / stage_chunks;
    rank = static_cast<int>(blockIdx.x) & (p.split_k - 1);
    first = stages * rank >> log2_split_k(p);
    last = stages * (rank + 1) >> log2_split_k(p);
    whole = max(min(last, p.chunks / stage_chunks) - first, 0);
  }
};

/// The addresses of the ring in shared memory.
struct Ring {
  std::uint32_t x, w;         ///< first stage of x, and of W
  std::uint32_t full, empty;  ///< first barriers

  template <class Config>
  __device__ __forceinline__ static Ring of(std::uint32_t base, const std::uint64_t* full,
                                            const std::uint64_t* empty) {
    return {base, base + Config::kStages * Config::kXBytes, ptx::cvta_shared(full),
            ptx::cvta_shared(empty)};
  }
};

/// Starts the copies of a tile's stages, from one thread.
template <class Config>
class StageLoader {
 public:
  __device__ StageLoader(const KernelArguments& p, const CUtensorMap& x_map, const Ring& ring)
      : p_(p), x_map_(x_map), x_ring_(ring.x), w_ring_(ring.w), full_(ring.full) {}

  __device__ __forceinline__ void begin(const WorkTile& work) {
    const std::int64_t first_tile = work.n_tile * Config::kNGroups;
    weights_ = p_.weights + work.group * p_.group_bytes + first_tile * row_bytes();
    tiles_ = min(Config::kNGroups, p_.n_tiles - work.n_tile * Config::kNGroups);
    slice_ = p_.x_of_group ? work.group : 0;
    m_ = work.m;
  }
  /// Starts the copies of a stage's weights. The barrier expects the bytes of the weights and of x.
  __device__ __forceinline__ void load_weights(int slot, int stage) const {
    const std::uint32_t to = w_ring_ + slot * Config::kWBytes, bar = full_ + slot * 8;
    const int chunk = stage * Config::kStageChunks;
    const int bytes = min(Config::kStageChunks, p_.chunks - chunk) * kTileBytes;
    const std::uint8_t* from = weights_ + chunk * kTileBytes;
    ptx::mbarrier_arrive_expect_tx(bar, x_chunk() * Config::kStageChunks + tiles_ * bytes);
#pragma unroll
    for (int i = 0; i < Config::kNGroups; ++i) {
      if (i < tiles_)
        ptx::cp_async_bulk(to + i * Config::kWRowBytes, from, bytes, bar, p_.weights_policy);
      from += row_bytes();
    }
  }
  __device__ __forceinline__ void load_x(int slot, int stage) const {
    const std::uint32_t to = x_ring_ + slot * Config::kXBytes, bar = full_ + slot * 8;
    const int chunk = stage * Config::kStageChunks;
    if (p_.x_whole_chunks) {
      ptx::cp_async_bulk_tensor_4d(to, &x_map_, 0, m_, chunk, slice_, bar);
    } else {
      for (int i = 0; i < Config::kStageChunks; ++i)
        ptx::cp_async_bulk_tensor_4d(to + i * x_chunk(), &x_map_, (chunk + i) * kTileCols, m_, 0,
                                     slice_, bar);
    }
  }

 private:
  __device__ __forceinline__ int x_chunk() const { return p_.x_box * (kTileCols * 2); }
  __device__ __forceinline__ std::int64_t row_bytes() const {
    return std::int64_t{p_.chunks} * kTileBytes;
  }

  const KernelArguments& p_;
  const CUtensorMap& x_map_;
  std::uint32_t x_ring_, w_ring_, full_;
  const std::uint8_t* weights_ = nullptr;
  int tiles_ = 0, slice_ = 0, m_ = 0;
};

}  // namespace nvfp4::cuda
