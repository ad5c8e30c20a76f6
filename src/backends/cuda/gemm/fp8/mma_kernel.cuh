#pragma once

#include "backends/cuda/gemm/fp8/fp8.h"
#include "backends/cuda/gemm/sm80/mma_kernel.cuh"

/// Computes outᵀ = W · xᵀ by mma.sync for E4M3 rows of W and x, which kernels have stored in the
/// workspace. A block has a tile and all of K. The epilogue is that of sm80.
namespace nvfp4::cuda::fp8 {

/// The compile-time constants of the kernel, as sm80::MmaConfig has them.
struct MmaConfig {
  struct State {};
  static constexpr bool kSwiglu = false, kBringsFactors = false, kSplitsByCluster = false;
  static constexpr Warps kWarps{.m = 2, .n = 4};
  static constexpr int kTileM = kMmaTile.m, kTileN = kMmaTile.n, kParts = 1, kMostSplit = 1;
  static constexpr int kThreads = sm80::threads(kWarps), kStages = 4;
  static constexpr int kWarpStrips = kTileN / 16 / kWarps.n, kOctets = kTileM / 8 / kWarps.m;
  static constexpr int kRowBytes = 64;  ///< columns of a row in a stage
  static constexpr int kXBytes = kTileM * kRowBytes;
  static constexpr int kStageBytes = kXBytes + kTileN * kRowBytes;
  static constexpr int kRingBytes = kStages * kStageBytes;
  static constexpr int kSlabRows = kTileM / kWarps.m, kSumStride = kTileN + 4;
  static constexpr int kSharedBytes = std::max(kRingBytes, kSlabRows* kSumStride * 4);
  static_assert(kSharedBytes <= 99 * 1024 && kMmaTile.k == kRowBytes);
  static_assert(2 * kWarpStrips == kOctets, "an octet of x is multiplied beside each ldmatrix");

  /// Returns the offset of 16 bytes of a row in a stage. ldmatrix reads all banks.
  __device__ __forceinline__ static int piece_at(int row, int piece) {
    return row * kRowBytes + ((piece ^ row / 2 % 4) << 4);
  }
};

/// Copies kRows rows of E4M3 [rows, columns] to the stages by cp.async.
template <int kRows>
class RowLoader {
  static constexpr int kPieces = MmaConfig::kRowBytes / 16;
  static constexpr int kAtOnce = MmaConfig::kThreads / kPieces;
  static_assert(kRows % kAtOnce == 0 && kAtOnce % 8 == 0);

 public:
  /// `row` is the tile's first row.
  __device__ __forceinline__ RowLoader(const void* matrix, int row, int rows, int columns)
      : step_(std::int64_t{columns} * kAtOnce) {
    const int r = static_cast<int>(threadIdx.x) / kPieces;
    const int piece = static_cast<int>(threadIdx.x) % kPieces;
    to_ = MmaConfig::piece_at(r, piece);
    left_ = columns - piece * 16;
    rows_ = rows - row - r;
    from_ = static_cast<const std::uint8_t*>(matrix) +
            static_cast<std::int64_t>(row + r) * columns + piece * 16;
  }
  /// Starts the copies of a stage. Columns past the end are zeros; rows past the end are not
  /// loaded.
  __device__ __forceinline__ void load(std::uint32_t to) {
#pragma unroll
    for (int i = 0; i < kRows / kAtOnce; ++i)
      if (i * kAtOnce < rows_)
        ptx::cp_async_16_zfill(to + to_ + i * kAtOnce * MmaConfig::kRowBytes, from_ + i * step_,
                               left_ > 0);
    from_ += MmaConfig::kRowBytes;
    left_ -= MmaConfig::kRowBytes;
  }

 private:
  const std::uint8_t* from_;
  std::int64_t step_;
  int to_, left_, rows_;
};

/// The addresses in a stage that a lane reads for 32 columns.
struct LaneAddresses {
  std::uint32_t w, x;
};

/// The operands of a warp for 32 columns.
struct Fragments {
  uint4 a[MmaConfig::kWarpStrips], b[MmaConfig::kOctets / 2];

  /// Loads part `i`: a strip of W, or two octets of x.
  __device__ __forceinline__ void load(const LaneAddresses& from, int i) {
    constexpr int kStrips = MmaConfig::kWarpStrips, kBytes = 16 * MmaConfig::kRowBytes;
    if (i < kStrips)
      a[i] = ptx::ldmatrix_x4(from.w + i * kBytes);
    else
      b[i - kStrips] = ptx::ldmatrix_x4(from.x + (i - kStrips) * kBytes);
  }
  /// Multiplies while the next fragments are loaded.
  __device__ __forceinline__ void multiply(sm80::Sums<MmaConfig>& d, Fragments& next,
                                           const LaneAddresses& from) const {
#pragma unroll
    for (int t = 0; t < MmaConfig::kOctets; ++t) {
      next.load(from, t);
      const uint4& v = b[t / 2];
#pragma unroll
      for (int s = 0; s < MmaConfig::kWarpStrips; ++s)
        ptx::mma_m16n8k32_e4m3(d[s][t], {a[s].x, a[s].y, a[s].z, a[s].w}, t % 2 == 0 ? v.x : v.z,
                               t % 2 == 0 ? v.y : v.w);
    }
  }
};

/// Returns the tile of a block. Blocks that run together share rows of x and of W.
__device__ __forceinline__ WorkTile tile_of_block(const KernelArguments& p) {
  constexpr int kBand = 16;  // tiles along M
  const int m_tiles = (p.m_end + MmaConfig::kTileM - 1) / MmaConfig::kTileM;
  const int n_tiles = (p.n + MmaConfig::kTileN - 1) / MmaConfig::kTileN;
  const int band = static_cast<int>(blockIdx.x) / (kBand * n_tiles);
  const int in_band = static_cast<int>(blockIdx.x) - band * (kBand * n_tiles);
  const int tiles = min(kBand, m_tiles - band * kBand);
  WorkTile work;
  work.n_tile = in_band / tiles;
  work.m = (band * kBand + in_band % tiles) * MmaConfig::kTileM;
  work.m_end = p.m_end;
  return work;
}

/// Computes the tile of a block. `memory` is shared memory of kSharedBytes.
__device__ __forceinline__ void multiply_tile(const KernelArguments& p, std::uint8_t* memory) {
  using Config = MmaConfig;
  constexpr int kStages = Config::kStages;
  const WorkTile work = tile_of_block(p);
  const sm80::WarpPlace<Config> at;
  const std::uint32_t ring = ptx::cvta_shared(memory);
  RowLoader<Config::kTileM> x(p.x, work.m, work.m_end, p.k);
  RowLoader<Config::kTileN> w(p.weights, work.n_tile * Config::kTileN, p.n, p.k);
  int left = (p.k + Config::kRowBytes - 1) / Config::kRowBytes;  // stages from the next one on
#pragma unroll
  for (int i = 0; i < kStages - 1; ++i) {
    if (i < left) {
      x.load(ring + i * Config::kStageBytes);
      w.load(ring + i * Config::kStageBytes + Config::kXBytes);
    }
    ptx::cp_async_commit_group();
  }
  // Lane 8i + j has the address of row j of matrix i. The second 32 columns are at address ^ 32.
  const std::uint32_t w_of_lane = Config::kXBytes +
                                  at.n * (Config::kWarpStrips * 16 * Config::kRowBytes) +
                                  Config::piece_at(at.lane % 16, at.lane / 16);
  const std::uint32_t x_of_lane = at.m * (Config::kOctets * 8 * Config::kRowBytes) +
                                  Config::piece_at(at.lane / 16 * 8 + at.lane % 8, at.lane / 8 % 2);
  sm80::Sums<Config> d = {};
  Fragments first, second;
  ptx::cp_async_wait_group<kStages - 2>();
  __syncthreads();
#pragma unroll
  for (int i = 0; i < Config::kOctets; ++i) first.load({ring + w_of_lane, ring + x_of_lane}, i);
  std::uint32_t read = ring, write = ring + (kStages - 1) * Config::kStageBytes;
#pragma unroll 1
  for (; left > 0; --left) {
    if (left >= kStages) {
      x.load(write);
      w.load(write + Config::kXBytes);
    }
    ptx::cp_async_commit_group();
    first.multiply(d, second, {(read + w_of_lane) ^ 32u, (read + x_of_lane) ^ 32u});
    ptx::cp_async_wait_group<kStages - 2>();
    __syncthreads();
    read = sm80::next_stage<Config>(read, ring);
    write = sm80::next_stage<Config>(write, ring);
    second.multiply(d, first, {read + w_of_lane, read + x_of_lane});
  }
  ptx::cp_async_wait_group<0>();
  __syncthreads();
  sm80::epilogue<Config>(p, work, work.m, *reinterpret_cast<Config::State*>(memory), d,
                         reinterpret_cast<float*>(memory), at);
}

}  // namespace nvfp4::cuda::fp8
