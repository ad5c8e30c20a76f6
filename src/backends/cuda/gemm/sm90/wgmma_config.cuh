#pragma once

#include "backends/cuda/gemm/fragment_layout.h"
#include "backends/cuda/gemm/sm90/epilogue.cuh"
#include "backends/cuda/gemm/sm90/epilogue_split_k.cuh"
#include "backends/cuda/gemm/sm90/kernels.h"
#include "backends/cuda/gemm/sm90/stream_k.cuh"
#include "backends/cuda/gemm/tile_scheduler.cuh"
#include "nvfp4/layout.h"

/// The compile-time constants of wgmma_gemm_kernel: tile, warpgroups, stages, shared memory.
namespace nvfp4::cuda {

/// The shared memory of a block after its stages.
template <int kStages>
struct SharedState {
  std::uint64_t full[kStages], empty[kStages];
  SplitKState split_k;
  TileSchedulerState scheduler;
  StreamKState stream_k;
};

template <DType kTypeOf, int kTileMOf, int kTileNOf, bool kSwigluOf,
          bool kDependentsEarlyOf = false, bool kStreamKOf = false>
struct WgmmaConfig {
  static constexpr DType kType = kTypeOf;
  static constexpr bool kSwiglu = kSwigluOf;
  static constexpr int kTileM = kTileMOf, kTileN = kTileNOf;
  /// Tiles of 64 rows of W and few rows of x exist with split-K only.
  static constexpr KernelConfig kTile{kTileM, kTileN,
                                      has_mainloop({kTileM, kTileN}, MainloopKind::wgmma) ? 1 : 2,
                                      kDependentsEarlyOf};
  static constexpr int kNGroups = n_groups(kTile), kMGroups = m_groups(kTile);
  static constexpr int kKGroups = k_groups(kTile);
  static constexpr int kWarpgroupM = kTileM / kMGroups;  ///< rows of x of one warpgroup
  static constexpr int kWarpgroups = kNGroups * kMGroups * kKGroups;  ///< consumers
  static constexpr int kConsumers = kWarpgroups * 128;  ///< number of consumer threads
  static constexpr bool kOwnsMultiprocessor = !leaves_room(kTile);
  static constexpr bool kStreamK = kStreamKOf;  ///< some blocks are stream-K blocks
  static constexpr bool kSingleTile = is_single_tile(kTile);
  static constexpr bool kManySplits = is_kernel({kTileM, kTileN, 8});  ///< up to 8; else 2
  /// For the fewest rows of x, mma.sync has a shorter latency than wgmma.
  static constexpr bool kMmaSync = kTileM == 8;
  static constexpr int kBlocksPerSm = blocks_per_multiprocessor(kTile);
  /// Registers are reassigned between warpgroups, so in large tiles the producer is a whole
  /// warpgroup.
  static constexpr int kThreads = kConsumers + (kOwnsMultiprocessor ? 128 : kStreamK ? 64 : 32);
  /// Registers not needed for sums go to the producer, which spills below 56. All warpgroups'
  /// registers sum to at most 65 536.
  static constexpr bool kManySums = kTileM * kTileN >= 128 * 128;
  static constexpr int kConsumerRegisters = kWarpgroups == 3 ? 152 : kManySums ? 224 : 208;
  static constexpr int kProducerRegisters = kWarpgroups == 3 || kManySums ? 56 : 88;
  static_assert(!kOwnsMultiprocessor ||
                    kConsumers * kConsumerRegisters + 128 * kProducerRegisters <= 65536,
                "the warpgroups of this tile ask for more registers than a multiprocessor has");
  static constexpr int kStageChunks = stage_chunks(kTile);
  static constexpr int kWarpgroupChunks = kStageChunks / kKGroups;  ///< chunks of one warpgroup
  static constexpr MShapes kMShapes = m_shapes(kTile);
  static constexpr int kShapes = kMShapes.count();
  template <int kIndex>
  static constexpr int kShape = kMShapes[kIndex];
  static constexpr int kXChunkBytes = kTileM * kTileCols * 2;
  static constexpr int kXBytes = kXChunkBytes * kStageChunks;
  static constexpr int kWRowBytes = kTileBytes * kStageChunks;  ///< bytes of 64 rows
  static constexpr int kWBytes = kNGroups * kWRowBytes;
  static constexpr int kStageBytes = kXBytes + kWBytes;
  // Slabs of the epilogue. Whole tiles wait there for TMA; other tiles pass through in parts. Tiles
  // with several values of M are stored by TMA in boxes.
  static constexpr bool kTmaStore = has_tma_store(kTile),
                        kTmaStoreBoxes = has_tma_store_boxes(kTile);
  static constexpr int kFloatSlabBytes = float_slab_rows(kWarpgroupM) * kSlabStride * 4;
  static constexpr int kTileSlabBytes = kTmaStore ? kWarpgroupM * (kSwiglu ? 64 : 128) : 0;
  /// Size for one warpgroup. A swizzle atom has 1024 bytes.
  static constexpr int kSlabBytes =
      kSingleTile
          ? 0
          : round_up(kFloatSlabBytes > kTileSlabBytes ? kFloatSlabBytes : kTileSlabBytes, 1024);
  static constexpr int kPartialStride = kTileN + 4;  ///< row stride, in floats, of partial sums
  static constexpr int kPartialBytes = kKGroups * kTileM * kPartialStride * 4;
  static constexpr int kStages =
      ((kOwnsMultiprocessor ? 220 : 107) * 1024 - kWarpgroups * kSlabBytes) / kStageBytes;
  static constexpr int kRingBytes =
      kStages * kStageBytes > kPartialBytes ? kStages* kStageBytes : kPartialBytes;
  static constexpr int kSlabOffset = round_up(kRingBytes, 1024);
  static constexpr int kStateOffset = kSlabOffset + kWarpgroups * kSlabBytes;
  static constexpr int kSharedBytes = kStateOffset + sizeof(SharedState<kStages>);
  static_assert(kWarpgroupChunks >= 1 && kStages >= 3);
  static_assert(kSharedBytes <= (kOwnsMultiprocessor ? 227 : 113) * 1024);
};

}  // namespace nvfp4::cuda
