#pragma once

#include <type_traits>

#include "backends/cuda/gemm/arguments.h"
#include "backends/cuda/gemm/dequantize_fragments.cuh"
#include "backends/cuda/gemm/fragment_layout.h"
#include "backends/cuda/gemm/sm90/epilogue_small_m.cuh"
#include "backends/cuda/gemm/sm90/kernels.h"
#include "backends/cuda/gemm/tile_scheduler.cuh"
#include "backends/cuda/ptx/ptx.cuh"

/// Computes outᵀ = W · xᵀ for few rows of x by mma.sync. A warp has a strip of 16 rows of W and a
/// part of K, and loads its own weights. Warps wait for each other only to add the parts, and for
/// x, which a block shares. Up to two rows of x, each warp loads its own x.
///
/// A block takes half the memory of a multiprocessor. The next kernel may start as soon as the
/// previous one has ended. Its blocks then load their weights beside this kernel.
namespace nvfp4::cuda {

template <DType kTypeOf, int kTileMOf, int kTileNOf, bool kSwigluOf, int kChunksOf = 2>
struct SmallMConfig {
  static constexpr DType kType = kTypeOf;
  static constexpr bool kSwiglu = kSwigluOf;
  static constexpr int kTileM = kTileMOf, kTileN = kTileNOf;
  static constexpr KernelConfig kTile{kTileM, kTileN, 1};
  static constexpr MShapes kMShapes = m_shapes(kTile);
  static constexpr int kShapes = kMShapes.count();
  static constexpr int kColumns = kTileM < 8 ? 8 : kTileM;  ///< columns of mma.sync
  static constexpr int kStrips = kTileN / 16, kWarps = 16, kThreads = 32 * kWarps;
  static constexpr int kParts = kWarps / kStrips;  ///< parts of K
  static constexpr int kChunks = kChunksOf;        ///< chunks of a part in a stage
  static constexpr bool kPerWarpXLoad = kTileM == kPerWarpXM;
  /// Number of sets of sums; alternating chunks use separate sets, which shortens dependencies.
  /// With 16 rows the other set belongs to another part, and sum_of_parts() adds in the same order.
  /// So SwiGLU, which has no such tile, gives the same bits.
  static constexpr int kSets = kTileM <= 8 && kTileN > 16 ? 2 : 1;
  // A stage has one or two chunks of 64 columns of each strip and part, and of x.
  static constexpr int kXChunkBytes = kPerWarpXLoad ? 256 : kTileM * kTileCols * 2;
  static constexpr int kXBytes = kPerWarpXLoad ? 0 : kChunks * kParts * kXChunkBytes;
  static constexpr int kCodeBytes = 16 * kTileCols / 2, kScaleBytes = 16 * kTileCols / 16;
  static constexpr int kWBytes = kChunks * (kCodeBytes + kScaleBytes);
  static constexpr int kWarpBytes = kWBytes + (kPerWarpXLoad ? kChunks * kXChunkBytes : 0);
  static constexpr int kStageBytes = kXBytes + kWarps * kWarpBytes;
  /// Three stages where warps load x: with four they take bandwidth from the previous kernel, which
  /// helps only blocks of fewer rows.
  static constexpr int kStages = kPerWarpXLoad && kTileN >= 64 ? 3 : 108 * 1024 / kStageBytes;
  static constexpr int kRingBytes = kStages * kStageBytes;
  static constexpr int kPartialStride = kTileN + 4;  ///< floats between the tokens of partial sums
  static constexpr int kPartialBytes = kParts * kTileM * kPartialStride * 4;
  static constexpr int kStateOffset = kRingBytes;
  static constexpr int kSharedBytes = kStateOffset + sizeof(SmallMState<kStages, kTileN, kTileM>);
  static_assert(kStages >= 2 && kPartialBytes <= kRingBytes);
  static_assert(kSharedBytes <= 113 * 1024);
};

/// Returns the address of the codes of a lane's first chunk.
template <class Config>
__device__ __forceinline__ const std::uint8_t* codes_of_lane(const KernelArguments& p,
                                                             const WorkTile& work, int tile,
                                                             int part, int lane) {
  return p.weights + work.group * p.group_bytes +
         (static_cast<std::int64_t>(tile / 4) * p.chunks + part) * kTileBytes +
         tile % 4 * Config::kCodeBytes + lane * 16;
}
/// Returns the address of 16 bytes of x of a chunk.
__device__ __forceinline__ const std::uint8_t* x_source_of_lane(const KernelArguments& p,
                                                                const WorkTile& work, int chunk,
                                                                int piece) {
  return static_cast<const std::uint8_t*>(p.x) +
         (work.m * p.x_stride + (p.x_of_group ? static_cast<std::int64_t>(work.group) * p.k : 0) +
          chunk * kTileCols + piece * 8) *
             2;
}
/// Returns the offset of a chunk's scales, or of its x, in a warp's part of a stage.
template <class Config>
__device__ __forceinline__ int small_of_stage(bool of_scales, int chunk) {
  return of_scales ? Config::kChunks * Config::kCodeBytes + chunk * Config::kScaleBytes
                   : Config::kWBytes + chunk * 256;
}
/// Returns the address at which a lane reads x of chunk i of a part. Shared x has rows of 128 bytes
/// with swizzled pieces of 16 bytes; a chunk has as many rows as are copied. A warp's own x has two
/// plain rows.
template <class Config>
__device__ __forceinline__ std::uint32_t x_of_lane(const KernelArguments& p, std::uint32_t base,
                                                   std::uint32_t warp_at, int chunk, int i,
                                                   int lane) {
  const int row = chunk * p.x_box + lane % 8;
  return Config::kPerWarpXLoad
             ? warp_at + Config::kWBytes + i * Config::kXChunkBytes + lane % 2 * 128 + lane / 8 * 16
             : base + row * 128 + ((lane / 8 ^ row % 8) << 4);
}

template <class Config>
__device__ __forceinline__ void init_shared_x(const CUtensorMap& x_map, std::uint32_t full,
                                              std::uint32_t empty) {
  if (threadIdx.x < Config::kStages) {
    ptx::mbarrier_init(full + threadIdx.x * 8, 1);
    ptx::mbarrier_init(empty + threadIdx.x * 8, Config::kWarps * ptx::arrivals_of_group(32));
    ptx::fence_mbarrier_init();
  }
  if (threadIdx.x == 32) ptx::prefetch_tensormap(&x_map);
}
/// Loads a stage of x, which the warps of a block share, by TMA.
template <class Config>
__device__ __forceinline__ void load_shared_x(const KernelArguments& p, const CUtensorMap& x_map,
                                              const WorkTile& work, std::uint32_t to,
                                              std::uint32_t bar, int group) {
  constexpr int kBoxChunks = Config::kChunks * Config::kParts;
  const int slice = p.x_of_group ? work.group : 0, chunk = group * kBoxChunks;
  const int chunk_bytes = p.x_box * (kTileCols * 2);
  ptx::mbarrier_arrive_expect_tx(bar, kBoxChunks * chunk_bytes);
  if (p.x_whole_chunks) {
    ptx::cp_async_bulk_tensor_4d(to, &x_map, 0, work.m, chunk, slice, bar);
  } else {
    for (int i = 0; i < kBoxChunks; ++i)
      ptx::cp_async_bulk_tensor_4d(to + i * chunk_bytes, &x_map, (chunk + i) * kTileCols, work.m, 0,
                                   slice, bar);
  }
}

/// Computes sums += W · xᵀ of a chunk; a lane reads x at `x`.
template <class Config, int kSums>
__device__ __forceinline__ void multiply_chunk(float (&sums)[kSums], const Fragments& f,
                                               std::uint32_t x) {
#pragma unroll
  for (int t = 0; t < Config::kColumns / 8; ++t) {
    const std::uint32_t at = x + t * 1024;
    const uint4 low = ptx::ldmatrix_x4(at),
                high = ptx::ldmatrix_x4(Config::kPerWarpXLoad ? at + 64 : at ^ 64);
    float* d = sums + t * 4;
    ptx::mma_m16n8k16<Config::kType>(d, f[0], low.x, low.y);
    ptx::mma_m16n8k16<Config::kType>(d, f[1], low.z, low.w);
    ptx::mma_m16n8k16<Config::kType>(d, f[2], high.x, high.y);
    ptx::mma_m16n8k16<Config::kType>(d, f[3], high.z, high.w);
  }
}

/// Multiplies the chunks of a warp; the first ones are already dequantized. The callbacks load the
/// parts of a stage: codes, scales (with a warp's own x), a chunk from shared memory, and shared x.
template <class Config, class LoadCodes, class LoadSmall, class LoadChunk, class LoadX>
__device__ __forceinline__ void mainloop_small_m(
    const KernelArguments& p, float (&d)[Config::kSets][Config::kColumns / 2],
    const Fragments (&first)[Config::kChunks], const std::uint32_t (&x_at)[Config::kChunks],
    int warp, int lane, int count, int groups, std::uint32_t full, Shift16 shift,
    const LoadCodes& load_codes, const LoadSmall& load_small, const LoadChunk& load_chunk,
    const LoadX& load_x) {
  constexpr int kStages = Config::kStages, kChunks = Config::kChunks, kSets = Config::kSets;
  const auto multiply = [&](const Fragments& f, std::uint32_t stage, int i) {
    multiply_chunk<Config>(d[i % kSets], f, x_at[i] + stage);
  };
  int left = count;
  // `many`: the stage and its successor in the same slot have all chunks.
  const auto load_next = [&](std::uint32_t stage, auto many) {
    __syncwarp();  // all lanes have read
    const int ahead = decltype(many)::value ? kChunks : left - kChunks * kStages;
    load_codes(stage, ahead);
    load_small(stage, ahead);
    ptx::cp_async_commit_group();
  };
  std::uint32_t stage = 0, bar = full, phase = 0;
  // Warps load x in turn, for the previous stage, which all warps have probably finished.
  const auto load_next_x = [&](int group, auto many) {
    if constexpr (!Config::kPerWarpXLoad) {
      if (group % Config::kWarps == warp && lane == 0 &&
          (decltype(many)::value || group - 1 + kStages < groups)) {
        const bool wraps = stage == 0;
        const std::uint32_t back = wraps ? Config::kRingBytes : 0, bars = wraps ? kStages * 8 : 0;
        const std::uint32_t before = bar + bars - 8;
        ptx::mbarrier_wait_parity(before + kStages * 8, wraps ? phase ^ 1 : phase);
        load_x(stage + back - Config::kStageBytes, before, group - 1 + kStages);
      }
    }
  };
  const auto advance = [&] {
    if constexpr (!Config::kPerWarpXLoad) {
      __syncwarp();  // all lanes have read
      if (ptx::arrives_for_group(lane)) ptx::mbarrier_arrive(bar + kStages * 8);
    }
    left -= kChunks;
    stage += Config::kStageBytes;
    bar += 8;
    if (stage == Config::kRingBytes) {
      stage = 0;
      bar = full;
      phase ^= 1;
    }
  };
  constexpr std::bool_constant<true> kMany;
  constexpr std::bool_constant<false> kAny;
  if constexpr (Config::kPerWarpXLoad) {
    ptx::cp_async_wait_group<kStages - 1>();
    __syncwarp();
  } else {
    load_next(0, kAny);
    ptx::mbarrier_wait_parity(full, 0);
  }
  if (count > 0) multiply(first[0], 0, 0);
  if constexpr (kChunks > 1)
    if (count > 1) multiply(first[1], 0, 1);
  if constexpr (Config::kPerWarpXLoad) load_next(0, kAny);
  advance();
  const auto run_group = [&](int group, auto many) {
    if (group == p.launch_dependents_step) ptx::griddepcontrol_launch_dependents();
    ptx::cp_async_wait_group<kStages - 1>();
    __syncwarp();
    LaneChunk chunks[kChunks];
#pragma unroll
    for (int i = 0; i < kChunks; ++i) chunks[i] = load_chunk(stage, i);
    if constexpr (!Config::kPerWarpXLoad) {
      load_next(stage, many);
      ptx::mbarrier_wait_parity(bar, phase);
    }
    Fragments f;
    if (kChunks == 2 && (decltype(many)::value || left > 1)) {
      decode_chunk<Config::kType>(chunks[0], shift, f);
      multiply(f, stage, 0);
      load_next_x(group, many);
      decode_chunk<Config::kType>(chunks[kChunks - 1], shift, f);
      multiply(f, stage, kChunks - 1);
    } else {
      if (kChunks == 1 ? decltype(many)::value || left > 0 : left == 1) {
        decode_chunk<Config::kType>(chunks[0], shift, f);
        multiply(f, stage, 0);
      }
      load_next_x(group, many);
    }
    if constexpr (Config::kPerWarpXLoad) load_next(stage, many);
    advance();
  };
  int group = 1;
  // A second loop is faster where x is shared, and slower otherwise.
  if constexpr (!Config::kPerWarpXLoad)
#pragma unroll 1
    for (; left > kChunks * (kStages + 1) - 1; ++group) run_group(group, kMany);
#pragma unroll 1
  for (; group < groups; ++group) run_group(group, kAny);
  if constexpr (kSets == 2)
#pragma unroll
    for (int i = 0; i < Config::kColumns / 2; ++i) d[0][i] += d[1][i];
}

template <class Config>
__global__ void __launch_bounds__(Config::kThreads, 2)
    small_m_gemm_kernel(const __grid_constant__ CUtensorMap x_map,
                        const __grid_constant__ KernelArguments p) {
  extern __shared__ __align__(1024) std::uint8_t memory[];
  constexpr int kStrips = Config::kStrips, kParts = Config::kParts, kStages = Config::kStages;
  constexpr int kChunks = Config::kChunks;
  using State = SmallMState<kStages, Config::kTileN, Config::kTileM>;
  auto& state = *reinterpret_cast<State*>(memory + Config::kStateOffset);
  const int lane = ptx::laneid();
  const int warp = __shfl_sync(~0u, static_cast<int>(threadIdx.x) / 32, 0);
  const int strip = warp % kStrips, part = warp / kStrips;
  const std::uint32_t base = ptx::cvta_shared(memory);
  const std::uint32_t full = ptx::cvta_shared(state.full), empty = ptx::cvta_shared(state.empty);
  if constexpr (!Config::kPerWarpXLoad) init_shared_x<Config>(x_map, full, empty);
  // Weights do not depend on the previous kernel. Everything that it may have written is read
  // later.
  if (p.ends != nullptr && !p.ends_settled) ptx::griddepcontrol_wait();
  TileScheduler<Config, false> scheduler(p, state.scheduler);
  scheduler.count();
  WorkTile work;
  if (!scheduler.first(work)) {
    ptx::griddepcontrol_wait();
    ptx::griddepcontrol_launch_dependents();
    return;
  }

  // Chunk i of a part is chunk i · kParts + part of K. The last of several tiles may be missing.
  const int tile = work.n_tile * kStrips + strip;  // tile of 16 rows
  const int count = tile / 4 < p.n_tiles ? (p.chunks - part + kParts - 1) / kParts : 0;
  const int groups = (p.chunks + kChunks * kParts - 1) / (kChunks * kParts);
  const std::uint8_t* from = codes_of_lane<Config>(p, work, tile, part, lane);
  const std::uint32_t warp_at = base + Config::kXBytes + warp * Config::kWarpBytes;
  const std::uint32_t codes_at = warp_at + lane * 16;
  const std::uint32_t scales_at = warp_at + kChunks * Config::kCodeBytes + lane / 4 * 8;
  std::uint32_t x_at[kChunks];  // for the chunks of a stage
#pragma unroll
  for (int i = 0; i < kChunks; ++i)
    x_at[i] = x_of_lane<Config>(p, base, warp_at, part + i * kParts, i, lane);
  // Lanes 0 to 7 load the scales, four for each chunk. Lanes 8 to 23 load a warp's own x, eight for
  // each chunk.
  const bool of_scales = !Config::kPerWarpXLoad || lane < 8;
  const int second = of_scales ? lane / 4 : lane / 8 - 1;  // chunk
  const int piece = of_scales ? lane % 4 : lane % 8;
  const std::uint32_t small_to = warp_at + piece * 16 + small_of_stage<Config>(of_scales, second);
  const std::uint8_t* small_from = of_scales
                                       ? from - lane * 16 + kTileCodeBytes +
                                             tile % 4 * (Config::kScaleBytes - Config::kCodeBytes) +
                                             piece * 16 + second * (kParts * kTileBytes)
                                       : x_source_of_lane(p, work, part + second * kParts, piece);
  const int small_step = kChunks * (of_scales ? kParts * kTileBytes : kParts * kTileCols * 2);
  const bool two_rows = Config::kPerWarpXLoad && work.m + 1 < work.m_end && !of_scales;
  const int small_limit = lane < (Config::kPerWarpXLoad ? 24 : 4 * kChunks) ? second : 1 << 30;
  /// `ahead` is the number of remaining chunks.
  const auto load_codes = [&](std::uint32_t stage, int ahead) {
    const std::uint32_t to = codes_at + stage;
    if (ahead > 0) ptx::cp_async_16(to, from);
    if (kChunks > 1 && ahead > 1)
      ptx::cp_async_16(to + Config::kCodeBytes, from + kParts * kTileBytes);
    from += kChunks * kParts * kTileBytes;
  };
  const auto load_small = [&](std::uint32_t stage, int ahead) {
    const std::uint32_t to = small_to + stage;
    if (small_limit < ahead) ptx::cp_async_16(to, small_from);
    if (two_rows && small_limit < ahead) ptx::cp_async_16(to + 128, small_from + p.x_stride * 2);
    small_from += small_step;
  };
  // The weights of the first stages.
#pragma unroll
  for (int i = 0; i < kStages; ++i) {
    load_codes(i * Config::kStageBytes, count - kChunks * i);
    if (of_scales) load_small(i * Config::kStageBytes, count - kChunks * i);
    ptx::cp_async_commit_group();
  }

  const Shift16 shift{p.sixteen};
  const auto load_chunk = [&](std::uint32_t stage, int i) {
    return LaneChunk{ptx::ld_shared<uint4>(codes_at + stage + i * Config::kCodeBytes),
                     ptx::ld_shared<uint2>(scales_at + stage + i * Config::kScaleBytes)};
  };
  // The first chunks are dequantized before x has arrived.
  ptx::cp_async_wait_group<kStages - 1>();
  __syncwarp();
  Fragments first[kChunks];
  if (count > 0) decode_chunk<Config::kType>(load_chunk(0, 0), shift, first[0]);
  if constexpr (kChunks > 1)
    if (count > 1) decode_chunk<Config::kType>(load_chunk(0, 1), shift, first[1]);

  ptx::griddepcontrol_wait();
  if (p.launch_dependents_step == 0) ptx::griddepcontrol_launch_dependents();
  const auto load_x = [&](std::uint32_t stage, std::uint32_t bar, int group) {
    load_shared_x<Config>(p, x_map, work, base + stage, bar, group);
  };
  if constexpr (Config::kPerWarpXLoad) {
#pragma unroll
    for (int i = 0; i < kStages; ++i) {
      if (!of_scales) load_small(i * Config::kStageBytes, count - kChunks * i);
      ptx::cp_async_commit_group();
    }
  } else if (threadIdx.x == 0) {
#pragma unroll
    for (int i = 0; i < kStages; ++i)
      if (i < groups) load_x(i * Config::kStageBytes, full + i * 8, i);
  }
  prefetch_epilogue_factors<Config>(p, work, state);

  constexpr int kSets = Config::kSets;
  float d[kSets][Config::kColumns / 2] = {};
  mainloop_small_m<Config>(p, d, first, x_at, warp, lane, count, groups, full, shift, load_codes,
                           load_small, load_chunk, load_x);
  ptx::cp_async_wait_group<0>();
  __syncthreads();  // the ring is free, and the factors have arrived
  store_small_m_partials<Config>(d[0], reinterpret_cast<float*>(memory), part, strip, lane);
  __syncthreads();
  if constexpr (Config::kSwiglu)
    epilogue_small_m_swiglu<Config>(p, work, reinterpret_cast<const float*>(memory), state);
  else
    epilogue_small_m<Config>(p, work, reinterpret_cast<const float*>(memory), state);
}

}  // namespace nvfp4::cuda
