#pragma once

#include "backends/cuda/gemm/problem.h"

/// Which tiles a block works on, in which order.
namespace nvfp4::cuda {

struct ScheduleState {
  int tile_ends[kMostGroups];  ///< cumulative tiles of tokens
};

/// What a block keeps in shared memory beside its stages.
template <int kStages>
struct BlockState {
  std::uint64_t full[kStages], empty[kStages];
  ScheduleState schedule;
};

struct Work {
  int group = 0, row_tile = 0;
  int token = 0, token_end = 0;  ///< rows of x and out
};

/// Tiles go along the rows of W first: x is read once, W stays in the L2 cache.
template <class Config>
class Schedule {
 public:
  /// All threads of the block; a __syncthreads() must follow.
  __device__ Schedule(const FragmentGemm& p, ScheduleState& state)
      : p_(p),
        state_(state),
        row_tiles_((p.row_tiles + Config::kRowGroups - 1) / Config::kRowGroups),
        tile_(static_cast<int>(blockIdx.x) / p.splits),
        step_(static_cast<int>(gridDim.x) / p.splits) {
    if (p.ends == nullptr || threadIdx.x >= 32) return;
    int sum = 0;
    for (int g0 = 0; g0 < p.groups; g0 += 32) {
      const int g = g0 + static_cast<int>(threadIdx.x);
      int tiles = g < p.groups ? tiles_of(end_of(g) - start_of(g)) : 0;
      for (int by = 1; by < 32; by *= 2) {
        const int below = __shfl_up_sync(~0u, tiles, by);
        if (static_cast<int>(threadIdx.x) >= by) tiles += below;
      }
      if (g < p.groups) state_.tile_ends[g] = sum + tiles;
      sum += __shfl_sync(~0u, tiles, 31);
    }
  }

  __device__ bool next(Work& work) {
    const int token_tile = tile_ / row_tiles_;
    work.row_tile = tile_ - token_tile * row_tiles_;
    tile_ += step_;
    if (p_.ends == nullptr) {
      const int tiles = tiles_of(p_.rows);
      if (token_tile >= tiles * p_.groups) return false;
      work.group = token_tile / tiles;
      work.token = (token_tile - work.group * tiles) * Config::kTokens;
      work.token_end = p_.rows;
      return true;
    }
    if (token_tile >= state_.tile_ends[p_.groups - 1]) return false;
    int low = 0, high = p_.groups - 1;
    while (low < high) {
      const int middle = (low + high) / 2;
      if (token_tile < state_.tile_ends[middle])
        high = middle;
      else
        low = middle + 1;
    }
    work.group = low;
    const int before = low == 0 ? 0 : state_.tile_ends[low - 1];
    work.token = start_of(low) + (token_tile - before) * Config::kTokens;
    work.token_end = end_of(low);
    return true;
  }

 private:
  __device__ static int tiles_of(int rows) {
    return rows <= 0 ? 0 : (rows + Config::kTokens - 1) / Config::kTokens;
  }
  // Whatever a caller's offsets say, rows are those of out.
  __device__ int end_of(int g) const { return min(p_.ends[g], p_.rows); }
  __device__ int start_of(int g) const {
    return max(0, p_.starts != nullptr ? p_.starts[g] : g == 0 ? 0 : p_.ends[g - 1]);
  }

  const FragmentGemm& p_;
  ScheduleState& state_;
  int row_tiles_, tile_, step_;
};

}  // namespace nvfp4::cuda
