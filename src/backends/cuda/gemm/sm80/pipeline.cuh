#pragma once

#include "backends/cuda/gemm/arguments.h"
#include "backends/cuda/gemm/sm80/mma_config.cuh"
#include "backends/cuda/ptx/barrier.cuh"
#include "backends/cuda/ptx/cp_async.cuh"
#include "backends/cuda/ptx/memory.cuh"

/// Copies global memory to the stages in shared memory by cp.async.
///
/// Each part of K has a ring of its own. The warps of a part fill and read it, so no part waits for
/// another until the sums are added. A stage has a chunk of 64 columns for each part. x comes
/// first, [part][row] of 128 bytes; its pieces of 16 bytes are swizzled by the row. W follows,
/// [part][64 rows of W], with codes and scales as in fragments_64x64, or the existing strips of a
/// tile.
namespace nvfp4::cuda::sm80 {

/// The chunks of K of a part of a block: every `step`-th from `first` on.
template <class Config>
struct KSlice {
  int first, step;

  __device__ __forceinline__ KSlice(const KernelArguments& p, int part)
      : first((static_cast<int>(blockIdx.x) & (p.split_k - 1)) * Config::kParts + part),
        step(p.split_k * Config::kParts) {}
};

/// Waits until the threads of a part have loaded the stage and read the previous one.
template <class Config>
__device__ __forceinline__ void part_barrier(int part) {
  if constexpr (Config::kParts == 1)
    __syncthreads();
  else if constexpr (Config::kPartThreads == 32)
    __syncwarp();
  else
    ptx::named_barrier_sync(1 + part, Config::kPartThreads);
}

/// The pieces of 16 bytes that a thread copies for its part.
template <class Config, int kPieces>
struct Share {
  static constexpr int kEach = (kPieces + Config::kPartThreads - 1) / Config::kPartThreads;
  static constexpr bool kEven = kPieces % Config::kPartThreads == 0;
  __device__ __forceinline__ static int thread() {
    return static_cast<int>(threadIdx.x) % Config::kPartThreads;
  }
  __device__ __forceinline__ static int piece(int i) { return thread() + i * Config::kPartThreads; }
  __device__ __forceinline__ static bool has(int i) {
    return i < kEach - 1 || kEven || piece(i) < kPieces;
  }
};

/// Loads W of a tile for a part of K.
template <class Config>
class WeightsLoader {
  static constexpr int kStrips = Config::kStrips;
  static constexpr bool kOneTile = kStrips <= 4;  ///< a tile of 64 rows, or a part of it
  static constexpr int kTileStrips = kOneTile ? kStrips : 4;
  static constexpr int kTilePieces = kTileStrips * kStripBytes / 16;
  static constexpr int kCodePieces = kTileStrips * (kTileCodeBytes / 4) / 16;
  using Mine = Share<Config, kStrips / kTileStrips * kTilePieces>;

 public:
  __device__ __forceinline__ WeightsLoader(const KernelArguments& p, const WorkTile& work,
                                           const KSlice<Config>& slice, int part)
      : to_(Config::kXBytes + part * Config::kWPartBytes + Mine::thread() * 16),
        step_(slice.step * kTileBytes) {
    const int strip = work.n_tile * kStrips, tile = strip / 4;
    from_ = p.weights + work.group * p.group_bytes +
            (static_cast<std::int64_t>(tile) * p.chunks + slice.first) * kTileBytes;
    // Whole tiles have the same layout in memory and in the stage.
    if constexpr (kStrips % 4 == 0 && kOneTile) from_ += Mine::thread() * 16;
#pragma unroll
    for (int i = 0; i < Mine::kEach; ++i) {
      const int of = Mine::piece(i) / kTilePieces, piece = Mine::piece(i) % kTilePieces;
      if constexpr (kStrips % 4 == 0)
        offset_[i] =
            kOneTile ? i * Config::kPartThreads * 16 : of * p.chunks * kTileBytes + piece * 16;
      else
        offset_[i] = piece < kCodePieces ? strip % 4 * (kTileCodeBytes / 4) + piece * 16
                                         : kTileCodeBytes + strip % 4 * (kTileScaleBytes / 4) +
                                               (piece - kCodePieces) * 16;
      // The last of several tiles may be missing; its sums are not stored.
      has_[i] = Mine::has(i) && tile + of < p.n_tiles;
    }
  }
  /// Starts the copies of a stage. `left` is the number of chunks from this part's on.
  __device__ __forceinline__ void load(std::uint32_t stage, int left) {
#pragma unroll
    for (int i = 0; i < Mine::kEach; ++i)
      if (has_[i] && left > 0)
        ptx::cp_async_16(stage + to_ + i * Config::kPartThreads * 16, from_ + offset_[i]);
    from_ += step_;
  }

 private:
  const std::uint8_t* from_;
  int to_, step_, offset_[Mine::kEach];
  bool has_[Mine::kEach];
};

/// Loads rows of x of a tile for a part of K; `row` is the first. Rows past the end are not loaded:
/// other rows' sums do not depend on them.
template <class Config>
class XLoader {
  static constexpr int kRowBytes = kTileCols * 2, kRowPieces = kRowBytes / 16;
  using Mine = Share<Config, Config::kTileM * kRowPieces>;
  static constexpr int kRows = Config::kPartThreads / kRowPieces;  ///< rows at a time
  static_assert(kRows % 4 == 0);

 public:
  __device__ __forceinline__ XLoader(const KernelArguments& p, const WorkTile& work, int row,
                                     const KSlice<Config>& slice, int part)
      : stride_(static_cast<int>(p.x_stride) * 2), step_(slice.step * kTileCols) {
    const int r = Mine::thread() / kRowPieces, piece = Mine::thread() % kRowPieces;
    const int column = slice.first * kTileCols + piece * 8;
    left_ = p.k - column;
    rows_ = work.m_end - work.m - r;
    to_ = part * Config::kXPartBytes + r * kRowBytes + ((piece ^ r % 8) << 4);
    from_ = static_cast<const std::uint8_t*>(p.x) +
            ((row + r) * p.x_stride +
             (p.x_of_group ? static_cast<std::int64_t>(work.group) * p.k : 0) + column) *
                2;
  }
  /// Starts the copies of a stage. Columns past the end are zeros, as in W, and are not read.
  __device__ __forceinline__ void load(std::uint32_t stage) {
#pragma unroll
    for (int i = 0; i < Mine::kEach; ++i)
      if (Mine::has(i) && i * kRows < rows_) {
        // An offset of four rows changes the swizzle.
        const int to = kRows % 8 != 0 && i % 2 == 1 ? to_ ^ 64 : to_;
        ptx::cp_async_16_zfill(stage + to + i * (kRows * kRowBytes),
                               from_ + static_cast<std::int64_t>(i * kRows) * stride_, left_ > 0);
      }
    from_ += step_ * 2;
    left_ -= step_;
  }

 private:
  const std::uint8_t* from_;
  int left_;  ///< columns from the piece on
  int stride_, step_, rows_, to_;
};

/// Loads W of a warp directly to registers: a chunk of two strips at a time.
template <class Config>
class DirectLoader {
 public:
  using Chunk = LaneChunk[2];

  __device__ __forceinline__ DirectLoader(const KernelArguments& p, const WorkTile& work,
                                          const KSlice<Config>& slice, int warp_n, int lane)
      : step_(slice.step * kTileBytes) {
    const int strip = work.n_tile * Config::kStrips + warp_n * 2;
    // The last of several tiles may be missing. Another tile is read instead; its sums are not
    // stored.
    const int tile = min(strip / 4, p.n_tiles - 1);
    const std::uint8_t* from =
        p.weights + work.group * p.group_bytes +
        (static_cast<std::int64_t>(tile) * p.chunks + slice.first) * kTileBytes;
    codes_ = from + strip % 4 * (kTileCodeBytes / 4) + lane * 16;
    scales_ = from + kTileCodeBytes + strip % 4 * (kTileScaleBytes / 4) + lane / 4 * 8;
  }
  __device__ __forceinline__ void load(Chunk& chunk, int left) {
    if (left > 0)
#pragma unroll
      for (int s = 0; s < 2; ++s)
        chunk[s] = {ptx::ld_global_nc<uint4>(codes_ + s * (kTileCodeBytes / 4)),
                    ptx::ld_global_nc<uint2>(scales_ + s * (kTileScaleBytes / 4))};
    codes_ += step_;
    scales_ += step_;
  }

 private:
  const std::uint8_t *codes_, *scales_;
  int step_;
};

}  // namespace nvfp4::cuda::sm80
