#pragma once

#include "backends/cuda/gemm/arguments.h"
#include "backends/cuda/gemm/sm80/mma_config.cuh"
#include "backends/cuda/ptx/cp_async.cuh"
#include "backends/cuda/ptx/memory.cuh"

/// Global memory -> the stages of shared memory, by cp.async of all threads of a block.
///
/// A stage has a chunk of 64 columns for each part of K: x, [part][row] of 128 bytes whose pieces
/// of 16 bytes are swizzled by the row, then W, [part][strip of 16 rows] of codes and scales as
/// fragments_64x64 has them.
namespace nvfp4::cuda::sm80 {

/// Pieces of 16 bytes that a thread brings of what a block has.
template <class Config, int kPieces>
struct Share {
  static constexpr int kEach = (kPieces + Config::kThreads - 1) / Config::kThreads;
  static constexpr bool kEven = kPieces % Config::kThreads == 0;
  __device__ __forceinline__ static int piece(int i) {
    return static_cast<int>(threadIdx.x) + i * Config::kThreads;
  }
  __device__ __forceinline__ static bool has(int i) { return kEven || piece(i) < kPieces; }
};

/// W of a tile.
template <class Config>
class WeightsLoader {
  static constexpr int kStripPieces = kStripBytes / 16, kCodePieces = kTileCodeBytes / 4 / 16;
  using Mine = Share<Config, Config::kParts * Config::kStrips * kStripPieces>;

 public:
  __device__ __forceinline__ WeightsLoader(const GemmArguments& p, const WorkTile& work)
      : from_(p.weights + work.group * p.group_bytes +
              static_cast<std::int64_t>(work.n_tile * Config::kStrips / 4) * p.chunks *
                  kTileBytes) {
    const int first = work.n_tile * Config::kStrips / 4;  // tile of 64 rows
#pragma unroll
    for (int i = 0; i < Mine::kEach; ++i) {
      const int strip_of_stage = Mine::piece(i) / kStripPieces;
      const int piece = Mine::piece(i) % kStripPieces;
      part_[i] = strip_of_stage / Config::kStrips;
      const int strip = work.n_tile * Config::kStrips + strip_of_stage % Config::kStrips;
      const int within = piece < kCodePieces ? strip % 4 * (kTileCodeBytes / 4) + piece * 16
                                             : kTileCodeBytes + strip % 4 * (kTileScaleBytes / 4) +
                                                   (piece - kCodePieces) * 16;
      offset_[i] = ((strip / 4 - first) * p.chunks + part_[i]) * kTileBytes + within;
      // The last of several tiles of rows may be missing: what is multiplied then is not stored.
      if (!Mine::has(i) || strip / 4 >= p.n_tiles) part_[i] = 1 << 30;
    }
  }
  /// `left`: chunks of K from this stage on.
  __device__ __forceinline__ void load(std::uint32_t stage, int left) {
#pragma unroll
    for (int i = 0; i < Mine::kEach; ++i)
      if (part_[i] < left)
        ptx::cp_async_16(stage + Config::kXBytes + Mine::piece(i) * 16, from_ + offset_[i]);
    from_ += Config::kParts * kTileBytes;
  }

 private:
  const std::uint8_t* from_;
  int part_[Mine::kEach], offset_[Mine::kEach];
};

/// Rows of x of a tile, the first of which is `row`. Those past the last one are not brought: what
/// is in their place changes no other row's sums.
template <class Config>
class XLoader {
  static constexpr int kRowBytes = kTileCols * 2, kRowPieces = kRowBytes / 16;
  using Mine = Share<Config, Config::kParts * Config::kTileM * kRowPieces>;
  /// Rows that the block brings at a time: some of a part, or some parts.
  static constexpr int kRows = Config::kThreads / kRowPieces;
  NVFP4_HD static constexpr int row_of(int i) {
    return kRows <= Config::kTileM ? i * kRows % Config::kTileM : 0;
  }
  NVFP4_HD static constexpr int part_of(int i) { return i * kRows / Config::kTileM; }
  static_assert(kRows % 8 == 0 && (kRows % Config::kTileM == 0 || Config::kTileM % kRows == 0));

 public:
  __device__ __forceinline__ XLoader(const GemmArguments& p, const WorkTile& work, int row)
      : left_(p.k), stride_(static_cast<int>(p.x_stride) * 2) {
    const int at = static_cast<int>(threadIdx.x) / kRowPieces;
    const int piece = static_cast<int>(threadIdx.x) % kRowPieces;
    const int r = at % Config::kTileM;
    column_ = at / Config::kTileM * kTileCols + piece * 8;
    rows_ = work.m_end - work.m - r;
    to_ = at * kRowBytes + ((piece ^ r % 8) << 4);
    from_ = static_cast<const std::uint8_t*>(p.x) +
            ((row + r) * p.x_stride +
             (p.x_of_group ? static_cast<std::int64_t>(work.group) * p.k : 0) + column_) *
                2;
  }
  /// Zeros behind the last column, where W has zeros too; nothing is read there.
  __device__ __forceinline__ void load(std::uint32_t stage) {
#pragma unroll
    for (int i = 0; i < Mine::kEach; ++i)
      if (Mine::has(i) && row_of(i) < rows_) {
        const bool inside = column_ + part_of(i) * kTileCols < left_;
        const std::uint8_t* from =
            from_ + static_cast<std::int64_t>(row_of(i)) * stride_ + part_of(i) * kRowBytes;
        ptx::cp_async_16_zfill(stage + to_ + i * (kRows * kRowBytes), from, inside);
      }
    from_ += Config::kParts * kRowBytes;
    left_ -= Config::kParts * kTileCols;
  }

 private:
  const std::uint8_t* from_;
  int left_;  ///< columns from the next stage on
  int stride_, column_, rows_, to_;
};

}  // namespace nvfp4::cuda::sm80
