#pragma once

#include "backends/cuda/gemm/problem.h"

/// Which tiles a block works on, in which order.
namespace nvfp4::cuda {

inline constexpr int kMappedTiles = 1024;
struct ScheduleState {
  int tile_ends[kMostGroups];            ///< cumulative tiles of tokens
  std::uint16_t group_of[kMappedTiles];  ///< of the first tiles of tokens
  int warp_sums[8];
};

__device__ __forceinline__ int log2_splits(const FragmentGemm& p) { return 31 - __clz(p.splits); }

struct Work {
  int group = 0, row_tile = 0;
  int token = 0, token_end = 0;  ///< rows of x and out
};

/// See help.cuh: the first blocks of the grid.
__device__ __forceinline__ bool is_helper(const FragmentGemm& p) {
  return static_cast<int>(blockIdx.x) < p.helpers;
}

/// Tiles go along the rows of W first: x is read once, W stays in the L2 cache.
/// kSeveral: a block may have more than one; else, in a kernel of strips, it asks for the first
/// only.
template <class Config, bool kSeveral>
class Schedule {
 public:
  /// With helpers a block has the tile that it would have without them, and a helper those of the
  /// blocks that it helps.
  __device__ Schedule(const FragmentGemm& p, ScheduleState& state)
      : p_(p),
        state_(state),
        row_tiles_((p.n + Config::kRows - 1) / Config::kRows),
        tile_(static_cast<int>(blockIdx.x) >> log2_splits(p)),
        step_(static_cast<int>(gridDim.x) >> log2_splits(p)) {
    if constexpr (kSeveral)
      if constexpr (Config::kHelped) {
        tile_ = (static_cast<int>(blockIdx.x) - (is_helper(p) ? 0 : p.helpers)) >> log2_splits(p);
        step_ = is_helper(p) ? p.helpers >> log2_splits(p) : step_;
      }
  }

  /// All threads of the block, which it synchronizes. Before, only the first tile is known, and
  /// that only if there are no ends.
  __device__ void count() {
    if (p_.ends != nullptr) count_tiles();
    __syncthreads();
    if constexpr (kSeveral) {
      tiles_ = row_tiles_ * (p_.ends == nullptr ? tiles_of(p_.rows - p_.first_row) * p_.groups
                                                : state_.tile_ends[p_.groups - 1]);
      // Groups must not overlap; if they do, there are more than blocks of one tile can take.
      if ((Config::kOneTile || p_.splits > 1) && !Config::kHelped) tiles_ = min(tiles_, step_);
    }
  }

  /// The first tile of the block; false: it has none.
  __device__ bool first(Work& work) const { return place<true>(work); }
  __device__ bool has_next() const { return tile_ < tiles_; }
  /// Of a helper: the block whose tile the last was.
  __device__ int block_of_tile() const {
    return ((tile_ - step_) << log2_splits(p_)) + (static_cast<int>(blockIdx.x) & (p_.splits - 1));
  }
  /// That, then the others.
  __device__ bool next(Work& work) {
    if (!has_next()) return false;
    place<false>(work);
    tile_ += step_;
    return true;
  }

 private:
  /// Where tile_ is. kChecks: false if it is not there.
  template <bool kChecks>
  __device__ bool place(Work& work) const {
    const int token_tile = quotient(tile_, row_tiles_);
    work.row_tile = tile_ - token_tile * row_tiles_;
    if (p_.ends == nullptr) {
      const int tiles = tiles_of(p_.rows - p_.first_row);
      if (kChecks && token_tile >= tiles * p_.groups) return false;
      work.group = quotient(token_tile, tiles);
      work.token = p_.first_row + (token_tile - work.group * tiles) * Config::kTokens;
      // The last tile does some rows again rather than copy what is past the end of x, which is
      // slow; with the few tokens of strips it is not.
      if constexpr (kSeveral)
        work.token = max(p_.first_row, min(work.token, p_.rows - Config::kTokens));
      work.token_end = p_.rows;
      return true;
    }
    if (kChecks && token_tile >= state_.tile_ends[p_.groups - 1]) return false;
    const int low = token_tile < kMappedTiles ? state_.group_of[token_tile] : group_at(token_tile);
    work.group = low;
    const int before = low == 0 ? 0 : state_.tile_ends[low - 1];
    const int first = start_of(low), end = end_of(low);
    const int width = width_of(end - first, state_.tile_ends[low] - before);
    work.token = first + (token_tile - before) * width;
    work.token_end = Config::kShapes > 1 ? min(work.token + width, end) : end;
    return true;
  }
  /// Eight warps have the same number of groups for each thread.
  __device__ void count_tiles() {
    constexpr int kThreads = 256;
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
  __device__ int group_at(int token_tile) const {
    int low = 0, high = p_.groups - 1;
    while (low < high) {
      const int middle = (low + high) / 2;
      if (token_tile < state_.tile_ends[middle])
        high = middle;
      else
        low = middle + 1;
    }
    return low;
  }
  __device__ static int tiles_of(int rows) {
    return rows <= 0 ? 0 : (rows + Config::kTokens - 1) / Config::kTokens;
  }
  __device__ static int width_of(int rows, int tiles) {
    constexpr GemmTile kTile = Config::kTile;
    return tile_width(kTile, rows, tiles);
  }
  /// Often 0, and a division takes long where all wait for the first tile.
  __device__ static int quotient(int a, int b) { return a < b ? 0 : a / b; }
  // Rows are those of out, whatever a caller's offsets say.
  __device__ int end_of(int g) const { return max(0, min(p_.ends[g], p_.rows)); }
  __device__ int start_of(int g) const {
    const int start = p_.starts != nullptr ? p_.starts[g] : g == 0 ? 0 : p_.ends[g - 1];
    return max(0, min(start, p_.rows));
  }

  const FragmentGemm& p_;
  ScheduleState& state_;
  int row_tiles_, tile_, step_;
  int tiles_ = 0;  ///< of rows and tokens
};

}  // namespace nvfp4::cuda
