#pragma once

#include "backends/cuda/gemm/sm120/kernels.h"
#include "backends/cuda/gemm/sm80/mma_config.cuh"

namespace nvfp4::cuda::sm120 {

/// The compile-time constants of a kernel, as in sm80. `ProductOf` multiplies: Omma or OmmaTwin.
template <int kM, int kN, int kK, bool kSwigluOf, class ProductOf>
struct OmmaConfig {
  using Product = ProductOf;
  static constexpr bool kSwiglu = kSwigluOf, kDirect = false;
  static constexpr KernelConfig kTile{kM, kN};
  static constexpr Kernel kKernel = kernel_of(kTile);
  static constexpr Warps kWarps = kKernel.warps;
  static constexpr bool kRouted = is_routed(kTile);
  static constexpr int kMostSplit = kKernel.split_k;  ///< mask of split-K values
  static constexpr int kTileM = rows_of(kTile), kTileN = kN, kParts = kWarps.k;
  static constexpr int kThreads = sm80::threads(kWarps), kStages = kKernel.stages;
  static constexpr int kBlocks = kKernel.blocks;
  static constexpr int kPartThreads = kThreads / kParts;
  static constexpr int kStrips = kTileN / 16, kWarpStrips = kStrips / kWarps.n;
  static constexpr int kOctets = kTileM / 8;
  static constexpr int kScaleStride = scale_stride(kTileM);
  static constexpr int kXPartBytes = x_part_bytes(kTile), kWPartBytes = w_part_bytes(kTile);
  static constexpr int kXBytes = kParts * kXPartBytes;
  static constexpr int kStageBytes = stage_bytes(kTile), kRingBytes = ring_bytes(kTile);
  static constexpr bool kSplitsByCluster = false;
  static constexpr int kSlabRows = slab_rows(kTile), kSumStride = sm80::sum_stride(kTile);
  static constexpr bool kBringsFactors = kN + kM < kThreads;
  using State = sm80::MmaState<kTileN, kTileM>;
  static constexpr int kStateOffset = state_offset(kTile);
  static constexpr int kSharedBytes = kStateOffset + static_cast<int>(sizeof(State));
  // Constants for the tile scheduler.
  static constexpr MShapes kMShapes{{kTileM}};
  static constexpr int kShapes = 1;
  static_assert(kK == stage_k(kTile));
  static_assert(kThreads >= 128 && kThreads % 128 == 0 && kSharedBytes <= most_shared_bytes(kTile));
  static_assert(kWarps.m == 1 && kWarpStrips * kWarps.n == kStrips && kStages >= 3);
  static_assert(kXPartBytes % 16 == 0 && kStageBytes % 128 == 0 && kTileM % kSlabRows == 0);
};

/// The constants of a kernel of the list.
template <int kIndex, bool kSwiglu, class Product>
using OmmaConfigAt = OmmaConfig<kKernels[kIndex].m, kKernels[kIndex].n,
                                kKernels[kIndex].warps.k * kTileCols, kSwiglu, Product>;

}  // namespace nvfp4::cuda::sm120
