#pragma once

#include "backends/cuda/gemm/arguments.h"
#include "backends/cuda/gemm/m_shapes.h"
#include "backends/moe_job.h"

/// Assigns tiles to thread blocks.
namespace nvfp4::cuda {

inline constexpr int kMappedTiles = 1024;
struct TileSchedulerState {
  int tile_ends[kMostGroups];            ///< cumulative number of row tiles
  std::uint16_t group_of[kMappedTiles];  ///< group of each of the first row tiles
  int warp_sums[8];
};

__device__ __forceinline__ int log2_split_k(const KernelArguments& p) {
  return 31 - __clz(p.split_k);
}

struct WorkTile {
  int group = 0, n_tile = 0;
  int m = 0, m_end = 0;  ///< range of rows of x and out
};

/// Reports whether this is one of the first blocks of the grid, which do stream-K.
__device__ __forceinline__ bool is_stream_k_block(const KernelArguments& p) {
  return static_cast<int>(blockIdx.x) < p.stream_k_blocks;
}

/// Iterates over the tiles of a block. Tiles advance along N first: x is read once, and W stays in
/// the L2 cache. Without kPersistent (the small-M kernel) a block takes only its first tile.
template <class Config, bool kPersistent>
class TileScheduler {
 public:
  /// With stream-K a block keeps its tile. A stream-K block visits the tiles of the blocks from
  /// which it takes slices.
  __device__ TileScheduler(const KernelArguments& p, TileSchedulerState& state)
      : p_(p),
        state_(state),
        n_tiles_((p.n + Config::kTileN - 1) / Config::kTileN),
        tile_(static_cast<int>(blockIdx.x) >> log2_split_k(p)),
        step_(static_cast<int>(gridDim.x) >> log2_split_k(p)) {
    if constexpr (kPersistent)
      if constexpr (Config::kStreamK) {
        tile_ = (static_cast<int>(blockIdx.x) - (is_stream_k_block(p) ? 0 : p.stream_k_blocks)) >>
                log2_split_k(p);
        step_ = is_stream_k_block(p) ? p.stream_k_blocks >> log2_split_k(p) : step_;
      }
  }

  /// Counts tiles. All threads of the block must call it; it synchronizes them. Before the call
  /// only the first tile is known, and only without `ends`.
  __device__ void count() {
    if (p_.ends != nullptr) count_tiles();
    __syncthreads();
    if constexpr (kPersistent) {
      tiles_ = n_tiles_ * (p_.ends == nullptr ? tiles_of(p_.m_end - p_.m_begin) * p_.groups
                                              : state_.tile_ends[p_.groups - 1]);
      // Groups must not overlap. If they do, there are more tiles than blocks of one tile each.
      if ((Config::kSingleTile || p_.split_k > 1) && !Config::kStreamK) tiles_ = min(tiles_, step_);
    }
  }

  /// Returns the first tile of the block; false if there is none.
  __device__ bool first(WorkTile& work) const { return place<true>(work); }
  __device__ bool has_next() const { return tile_ < tiles_; }
  /// Returns the block that owns the last tile of a stream-K block.
  __device__ int block_of_tile() const {
    return ((tile_ - step_) << log2_split_k(p_)) +
           (static_cast<int>(blockIdx.x) & (p_.split_k - 1));
  }
  /// Returns the first tile, then the others.
  __device__ bool next(WorkTile& work) {
    if (!has_next()) return false;
    place<false>(work);
    tile_ += step_;
    return true;
  }

 private:
  /// Computes the position of tile_. With kChecks it returns false if tile_ is past the end.
  template <bool kChecks>
  __device__ bool place(WorkTile& work) const {
    const int m_tile = quotient(tile_, n_tiles_);
    work.n_tile = tile_ - m_tile * n_tiles_;
    if (p_.ends == nullptr) {
      const int tiles = tiles_of(p_.m_end - p_.m_begin);
      if (kChecks && m_tile >= tiles * p_.groups) return false;
      work.group = quotient(m_tile, tiles);
      work.m = p_.m_begin + (m_tile - work.group * tiles) * Config::kTileM;
      // The last tile repeats some rows, because a copy beyond the end of x is slow. For small M it
      // is not slow.
      if constexpr (kPersistent) work.m = max(p_.m_begin, min(work.m, p_.m_end - Config::kTileM));
      work.m_end = p_.m_end;
      return true;
    }
    if (kChecks && m_tile >= state_.tile_ends[p_.groups - 1]) return false;
    const int low = m_tile < kMappedTiles ? state_.group_of[m_tile] : group_at(m_tile);
    work.group = low;
    const int before = low == 0 ? 0 : state_.tile_ends[low - 1];
    const int first = start_of(low), end = end_of(low);
    const int width = width_of(end - first, state_.tile_ends[low] - before);
    work.m = first + (m_tile - before) * width;
    work.m_end = Config::kShapes > 1 ? min(work.m + width, end) : end;
    return true;
  }
  /// Sums with up to eight warps; each thread has an equal number of groups.
  __device__ void count_tiles() {
    constexpr int kThreads = Config::kThreads < 256 ? Config::kThreads : 256;
    const int thread = static_cast<int>(threadIdx.x), lane = thread % 32;
    const int each = (p_.groups + kThreads - 1) / kThreads;
    const int first = thread * each, last = min(first + each, p_.groups);
    int tiles = 0, sum = 0;
    if (thread < kThreads) {
      for (int g = first; g < last; ++g) tiles += tiles_of(end_of(g) - start_of(g));
      sum = tiles;
      for (int by = 1; by < 32; by *= 2) {
        const int below = __shfl_up_sync(~0u, sum, by);
        if (lane >= by) sum += below;
      }
      if (lane == 31) state_.warp_sums[thread / 32] = sum;
    }
    __syncthreads();
    if (thread >= kThreads) return;
    int tile = sum - tiles;
    for (int w = 0; w < thread / 32; ++w) tile += state_.warp_sums[w];
    for (int g = first; g < last; ++g) {
      const int end = tile + tiles_of(end_of(g) - start_of(g));
      state_.tile_ends[g] = end;
      for (; tile < min(end, kMappedTiles); ++tile)
        state_.group_of[tile] = static_cast<std::uint16_t>(g);
      tile = end;
    }
  }
  __device__ int group_at(int m_tile) const {
    int low = 0, high = p_.groups - 1;
    while (low < high) {
      const int middle = (low + high) / 2;
      if (m_tile < state_.tile_ends[middle])
        high = middle;
      else
        low = middle + 1;
    }
    return low;
  }
  __device__ static int tiles_of(int rows) {
    return rows <= 0 ? 0 : (rows + Config::kTileM - 1) / Config::kTileM;
  }
  __device__ static int width_of(int rows, int tiles) {
    constexpr MShapes kShapes = Config::kMShapes;
    return kShapes.rows_of_tile(rows, tiles);
  }
  /// Returns a / b. The quotient is often 0, and every thread waits for the division of the first
  /// tile.
  __device__ static int quotient(int a, int b) { return a < b ? 0 : a / b; }
  // Rows are limited to those of out, whatever the caller's offsets are.
  __device__ int end_of(int g) const { return max(0, min(p_.ends[g], p_.m_end)); }
  __device__ int start_of(int g) const {
    const int start = p_.starts != nullptr ? p_.starts[g] : g == 0 ? 0 : p_.ends[g - 1];
    return max(0, min(start, p_.m_end));
  }

  const KernelArguments& p_;
  TileSchedulerState& state_;
  int n_tiles_, tile_, step_;
  int tiles_ = 0;
};

}  // namespace nvfp4::cuda
