#pragma once

#include "backends/cuda/gemm/sm80/kernels.h"
#include "backends/cuda/gemm/tile_scheduler.cuh"
#include "nvfp4/matrix.h"

namespace nvfp4::cuda::sm80 {

/// The shared memory of a block after its stages.
template <int kTileN, int kTileM>
struct MmaState {
  bool is_last;  ///< the last of the blocks that share K
  TileSchedulerState scheduler;
  float w_global[kTileN], bias[kTileN], x_global[kTileM], alpha;
};

/// The compile-time constants of the kernel with a tile of kM rows of x, kN rows of W and kK
/// columns in a stage.
template <DType kTypeOf, int kM, int kN, int kK, bool kSwigluOf>
struct MmaConfig {
  static constexpr DType kType = kTypeOf;
  static constexpr bool kSwiglu = kSwigluOf;
  static constexpr KernelConfig kTile{kM, kN};
  static constexpr Kernel kKernel = kernel_of(kTile);
  static constexpr Warps kWarps = kKernel.warps;
  static constexpr bool kRouted = is_routed(kTile);
  static constexpr int kMostSplit = kKernel.split_k;  ///< mask of split-K values
  static constexpr int kTileM = kM, kTileN = kN, kParts = kWarps.k;
  static constexpr bool kDirect = is_direct(kTile);
  static constexpr int kThreads = threads(kWarps), kStages = kKernel.stages,
                       kBlocks = kKernel.blocks;
  /// Number of threads that share a part of K and its stages.
  static constexpr int kPartThreads = kThreads / kParts;
  static constexpr int kStrips = kTileN / 16, kWarpStrips = kStrips / kWarps.n;
  /// Number of groups of eight rows of x that a warp multiplies. With fewer than eight rows, rows
  /// repeat in the surplus columns of mma.sync.
  static constexpr int kOctets = (kTileM < 8 ? 8 : kTileM) / 8 / kWarps.m;
  static constexpr int kXBytes = x_stage_bytes(kTile), kWBytes = w_stage_bytes(kTile);
  static constexpr int kStageBytes = kXBytes + kWBytes, kRingBytes = ring_bytes(kTile);
  static constexpr int kXPartBytes = kXBytes / kParts, kWPartBytes = kWBytes / kParts;
  static constexpr bool kSplitsByCluster = false;  ///< blocks that share K need not run together
  static constexpr int kSlabRows = slab_rows(kTile), kSumStride = sum_stride(kTile);
  /// True if the epilogue's factors are copied to shared memory at the start. The copies serve
  /// tiles of few rows, which would otherwise wait at the end.
  static constexpr bool kBringsFactors = kN + kM < kThreads;
  using State = MmaState<kTileN, kTileM>;
  static constexpr int kStateOffset = state_offset(kTile);
  static constexpr int kSharedBytes = kStateOffset + static_cast<int>(sizeof(State));
  // Constants for the tile scheduler.
  static constexpr MShapes kMShapes{{kTileM}};
  static constexpr int kShapes = 1;
  static_assert(kK == stage_k(kTile));
  static_assert(kThreads >= 256 && kSharedBytes <= 99 * 1024);
  static_assert(kWarpStrips * kWarps.n == kStrips && kOctets >= 1);
};

/// The constants of a kernel of the list.
template <DType kType, int kIndex, bool kSwiglu>
using MmaConfigAt = MmaConfig<kType, kKernels[kIndex].m, kKernels[kIndex].n,
                              kKernels[kIndex].warps.k * kTileCols, kSwiglu>;

}  // namespace nvfp4::cuda::sm80
