#pragma once

#include <cuda.h>

#include "backends/cuda/gemm/async.cuh"
#include "backends/cuda/gemm/fragment_layout.h"
#include "backends/cuda/gemm/problem.h"
#include "backends/cuda/gemm/schedule.cuh"

namespace nvfp4::cuda {

/// The part of the depth that a block of a cluster has, in stages; the last one may have fewer
/// chunks.
struct Depth {
  int rank, first, last;
  int whole;  ///< stages that have all chunks

  __device__ Depth(const FragmentGemm& p, int stage_chunks) {
    const int stages = (p.chunks + stage_chunks - 1) / stage_chunks;
    rank = static_cast<int>(blockIdx.x) & (p.splits - 1);
    first = stages * rank >> log2_splits(p);
    last = stages * (rank + 1) >> log2_splits(p);
    whole = max(min(last, p.chunks / stage_chunks) - first, 0);
  }
};

/// What one thread does: it starts the copies of a tile's stages into the ring.
template <class Config>
class Loader {
 public:
  __device__ Loader(const FragmentGemm& p, const CUtensorMap& x_map, std::uint32_t ring,
                    std::uint32_t full)
      : p_(p),
        x_map_(x_map),
        x_ring_(ring),
        w_ring_(ring + Config::kStages * Config::kXBytes),
        full_(full) {}

  __device__ __forceinline__ void begin(const Work& work) {
    const std::int64_t first_tile = work.row_tile * Config::kRowGroups;
    weights_ = p_.weights + work.group * p_.group_bytes + first_tile * row_bytes();
    tiles_ = min(Config::kRowGroups, p_.row_tiles - work.row_tile * Config::kRowGroups);
    slice_ = p_.x_of_group ? work.group : 0;
    token_ = work.token;
  }
  /// Those of a stage, and how many bytes it will have with x.
  __device__ __forceinline__ void load_weights(int slot, int stage) const {
    const std::uint32_t to = w_ring_ + slot * Config::kWBytes, bar = full_ + slot * 8;
    const int chunk = stage * Config::kStageChunks;
    const int bytes = min(Config::kStageChunks, p_.chunks - chunk) * kTileBytes;
    const std::uint8_t* from = weights_ + chunk * kTileBytes;
    barrier_expect(bar, x_chunk() * Config::kStageChunks + tiles_ * bytes);
#pragma unroll
    for (int i = 0; i < Config::kRowGroups; ++i) {
      if (i < tiles_) load_bulk(to + i * Config::kWRowBytes, from, bytes, bar, p_.weights_policy);
      from += row_bytes();
    }
  }
  __device__ __forceinline__ void load_x(int slot, int stage) const {
    const std::uint32_t to = x_ring_ + slot * Config::kXBytes, bar = full_ + slot * 8;
    const int chunk = stage * Config::kStageChunks;
    if (p_.x_whole_chunks) {
      load_box(to, &x_map_, 0, token_, chunk, slice_, bar);
    } else {
      for (int i = 0; i < Config::kStageChunks; ++i)
        load_box(to + i * x_chunk(), &x_map_, (chunk + i) * kTileCols, token_, 0, slice_, bar);
    }
  }

 private:
  __device__ __forceinline__ int x_chunk() const { return p_.x_box * (kTileCols * 2); }
  __device__ __forceinline__ std::int64_t row_bytes() const {
    return std::int64_t{p_.chunks} * kTileBytes;
  }

  const FragmentGemm& p_;
  const CUtensorMap& x_map_;
  std::uint32_t x_ring_, w_ring_, full_;
  const std::uint8_t* weights_ = nullptr;
  int tiles_ = 0, slice_ = 0, token_ = 0;
};

}  // namespace nvfp4::cuda
