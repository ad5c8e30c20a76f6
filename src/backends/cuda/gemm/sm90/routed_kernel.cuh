#pragma once

#include "backends/cuda/device/routing.cuh"
#include "backends/cuda/gemm/arguments.h"
#include "backends/cuda/gemm/sm90/dequantize_fragments.cuh"
#include "backends/cuda/gemm/sm90/epilogue_small_m.cuh"
#include "backends/cuda/ptx/ptx.cuh"
#include "backends/device_backend.h"

/// outᵀ = W · xᵀ of one row of x, with the weights that a routing names, by mma.sync: a warp has a
/// strip of 16 rows of W and a part of K, and brings its weights itself. The whole row of x
/// is in shared memory from the start, so that no warp waits for another before the parts are
/// added up.
///
/// A block takes half of a multiprocessor, as those of small_m_gemm_kernel do, up to K = 38 000.
namespace nvfp4::cuda {

template <int kTileN>
struct RoutedState {
  std::uint64_t x_there;
  float w_global[kTileN], bias[kTileN], x_global[1], alpha;
  WorkTile of_out;  ///< what the end needs, so that no register keeps it
};

template <DType kTypeOf, int kTileNOf, bool kSwigluOf>
struct RoutedConfig {
  static constexpr DType kType = kTypeOf;
  static constexpr bool kSwiglu = kSwigluOf;
  static constexpr int kTileM = 1, kTileN = kTileNOf;
  static constexpr KernelConfig kTile{kTileM, kTileN, 1};
  static constexpr int kStrips = kTileN / 16, kParts = small_m_k_parts(kTile);
  static constexpr int kWarps = kStrips * kParts, kThreads = 32 * kWarps;
  static constexpr int kChunks = 2;  ///< of a part in a stage: a pair
  /// No more: the blocks of the next kernel bring theirs early and take the memory from this one,
  /// and the more is on its way, the further apart blocks end (four stages: 6 % slower).
  static constexpr int kStages = 2;
  static constexpr int kCodeBytes = 16 * kTileCols / 2, kScaleBytes = 16 * kTileCols / 16;
  static constexpr int kXChunkBytes = kTileCols * 2;
  static constexpr int kWarpBytes = kChunks * (kCodeBytes + kScaleBytes);
  static constexpr int kStageBytes = kWarps * kWarpBytes;
  static constexpr int kRingBytes = kStages * kStageBytes;
  static constexpr int kPartialStride = kTileN + 4;  ///< floats of a part's sums
  static constexpr int kStateOffset = kRingBytes;
  static constexpr int kXOffset =
      kStateOffset + static_cast<int>(round_up(sizeof(RoutedState<kTileN>), 16));
  /// With x, and zeros behind it to the end of a stage.
  NVFP4_HD static constexpr int shared_bytes(int chunks) {
    return kXOffset + static_cast<int>(round_up(chunks, kChunks)) * kXChunkBytes;
  }
  static constexpr int kSharedBytes = 227 * 1024;  ///< at most
  static_assert(kParts * kPartialStride * 4 <= kRingBytes);
  static_assert(shared_bytes(kMostRoutedDepth / kTileCols) <= kSharedBytes);
};

template <class Config>
__global__ void __launch_bounds__(Config::kThreads, 2)
    routed_gemm_kernel(const __grid_constant__ GemmArguments p) {
  extern __shared__ __align__(1024) std::uint8_t memory[];
  constexpr int kStrips = Config::kStrips, kParts = Config::kParts, kStages = Config::kStages;
  constexpr int kChunks = Config::kChunks;
  auto& state = *reinterpret_cast<RoutedState<Config::kTileN>*>(memory + Config::kStateOffset);
  int lane;  // volatile, or ptxas would compute all that depends on it again and again
  asm volatile("mov.u32 %0, %%laneid;" : "=r"(lane));
  const int warp = __shfl_sync(~0u, static_cast<int>(threadIdx.x) / 32, 0);
  const int strip = warp % kStrips, part = warp / kStrips;
  const std::uint32_t base = ptx::cvta_shared(memory), x_there = ptx::cvta_shared(&state.x_there);
  if (threadIdx.x == 0) {
    ptx::mbarrier_init(x_there, 1);
    ptx::fence_mbarrier_init();
  }
  for (int i = Config::kXOffset + p.k * 2 + static_cast<int>(threadIdx.x) * 16;
       i < Config::shared_bytes(p.chunks); i += Config::kThreads * 16)
    *reinterpret_cast<uint4*>(memory + i) = {};

  // Rows of W that are other groups' follow one another in the grid.
  const int row_tiles = (p.n + Config::kTileN - 1) / Config::kTileN;
  const int row = static_cast<int>(blockIdx.x) / row_tiles;
  const int token = row / static_cast<int>(p.routing.top_k);
  const int choice = row - token * static_cast<int>(p.routing.top_k);
  WorkTile work;
  work.n_tile = static_cast<int>(blockIdx.x) - row * row_tiles;
  work.m = row / p.rows_of_token;
  work.m_end = work.m + 1;
  // The weights do not depend on the kernel before; all that it may have written does.
  if (!p.ends_settled) ptx::griddepcontrol_wait();
  work.group = expert_at(p.routing, token, choice, p.groups);
  __syncthreads();
  if (work.group < 0) {
    ptx::griddepcontrol_wait();
    ptx::griddepcontrol_launch_dependents();
    return;
  }
  const auto load_x = [&] {
    if (threadIdx.x != 0) return;
    const auto* from = static_cast<const std::uint8_t*>(p.x) + work.m * p.x_stride * 2;
    ptx::mbarrier_arrive_expect_tx(x_there, p.k * 2);
    ptx::cp_async_bulk(base + Config::kXOffset, from, p.k * 2, x_there, kEvictNormal);
  };
  if (!p.ends_settled) load_x();
  if (threadIdx.x == 0) state.of_out = {work.group, work.n_tile, row, row + 1};

  // The parts have pairs of chunks in turn. The last of several tiles of 64 rows need not be there.
  const int tile = work.n_tile * kStrips + strip;  // of 16 rows
  const int pairs = (p.chunks + 1) / kChunks;
  const bool has_half = p.chunks % kChunks != 0 && (pairs - 1 - part) % kParts == 0;
  const int count = tile / 4 < p.n_tiles
                        ? kChunks * ((pairs - part + kParts - 1) / kParts) - (has_half ? 1 : 0)
                        : 0;
  // Between the chunks of a pair: offsets of copies reach 2 KB.
  constexpr int kStep = kChunks * kParts * kTileBytes;
  const std::uint8_t* from =
      p.weights + work.group * p.group_bytes +
      (static_cast<std::int64_t>(tile / 4) * p.chunks + kChunks * part) * kTileBytes +
      tile % 4 * Config::kCodeBytes + lane * 16 + kTileBytes / 2;
  // Lanes 0 to 7 bring the scales, four for each chunk.
  const int of_chunk = lane / 4;
  const std::uint8_t* scales_from = from - lane * 16 - kTileBytes / 2 + kTileCodeBytes +
                                    tile % 4 * (Config::kScaleBytes - Config::kCodeBytes) +
                                    lane % 4 * 16 + of_chunk * kTileBytes;
  const std::uint32_t warp_at = base + warp * Config::kWarpBytes;
  const std::uint32_t codes_at = warp_at + lane * 16;
  const std::uint32_t scales_at = warp_at + kChunks * Config::kCodeBytes + lane / 4 * 8;
  const std::uint32_t scales_to = warp_at + kChunks * Config::kCodeBytes + lane * 16;
  const int scales_before = of_chunk < kChunks ? of_chunk : 1 << 30;
  // What is never brought is multiplied by zeros, but must not be NaN.
  if (has_half)
    for (int i = 0; i < kStages; ++i)
      *reinterpret_cast<std::uint16_t*>(memory + i * Config::kStageBytes +
                                        warp * Config::kWarpBytes + kChunks * Config::kCodeBytes +
                                        Config::kScaleBytes + lane * 2) = 0;
  __syncwarp();
  /// Of `ahead` chunks that are left.
  const auto load_weights = [&](std::uint32_t stage, int ahead) {
#pragma unroll
    for (int i = 0; i < kChunks; ++i)
      if (ahead > i)
        ptx::cp_async_16(codes_at + stage + i * Config::kCodeBytes,
                         from + (2 * i - 1) * (kTileBytes / 2));
    if (scales_before < ahead) ptx::cp_async_16(scales_to + stage, scales_from);
    ptx::cp_async_commit_group();
    from += kStep;
    scales_from += kStep;
  };
#pragma unroll
  for (int i = 0; i < kStages; ++i) load_weights(i * Config::kStageBytes, count - kChunks * i);

  const Shift16 shift{p.sixteen};
  const auto load_chunk = [&](std::uint32_t stage, int i) {
    return LaneChunk{ptx::ld_shared<uint4>(codes_at + stage + i * Config::kCodeBytes),
                     ptx::ld_shared<uint2>(scales_at + stage + i * Config::kScaleBytes)};
  };
  // What is done before x is there: to decode the first chunks.
  ptx::cp_async_wait_group<kStages - 1>();
  __syncwarp();
  Fragments first[kChunks];
  if (count > 0)  // a block of its own, or ptxas would move it behind the wait
#pragma unroll
    for (int i = 0; i < kChunks; ++i)
      decode_chunk<Config::kType>(load_chunk(0, i), shift, first[i]);
  std::uint32_t stage = 0;
  int ahead = count - kChunks * kStages;
  const auto load_next = [&] {
    __syncwarp();  // all have read
    load_weights(stage, ahead);
    ahead -= kChunks;
    stage = stage == Config::kRingBytes - Config::kStageBytes ? 0 : stage + Config::kStageBytes;
  };
  load_next();

  ptx::griddepcontrol_wait();
  ptx::griddepcontrol_launch_dependents();
  if (p.ends_settled) load_x();
  prefetch_epilogue_factors<Config>(p, work, state);

  // Sums of chunks in turn: less to wait for. All columns of mma.sync are the one row of x.
  float d[kChunks][4] = {};
  std::uint32_t x_at =
      base + Config::kXOffset + kChunks * part * Config::kXChunkBytes + lane / 8 * 16;
  const auto multiply = [&](const Fragments& f, int i) {
    const std::uint32_t x = x_at + i * Config::kXChunkBytes;
    const uint4 low = ptx::ldmatrix_x4(x), high = ptx::ldmatrix_x4(x + 64);
    ptx::mma_m16n8k16<Config::kType>(d[i], f[0], low.x, low.y);
    ptx::mma_m16n8k16<Config::kType>(d[i], f[1], low.z, low.w);
    ptx::mma_m16n8k16<Config::kType>(d[i], f[2], high.x, high.y);
    ptx::mma_m16n8k16<Config::kType>(d[i], f[3], high.z, high.w);
  };
  ptx::mbarrier_wait_parity(x_there, 0);
  if (count > 0)
#pragma unroll
    for (int i = 0; i < kChunks; ++i) multiply(first[i], i);
  // One addition for each pointer and step, not those from where it was before the loop.
  asm volatile("" : "+l"(from), "+l"(scales_from), "+r"(ahead));
#pragma unroll 1
  while (ahead > -kChunks * kStages) {
    ptx::cp_async_wait_group<kStages - 1>();
    __syncwarp();
    LaneChunk chunks[kChunks];
#pragma unroll
    for (int i = 0; i < kChunks; ++i) chunks[i] = load_chunk(stage, i);
    load_next();
    x_at += kChunks * kParts * Config::kXChunkBytes;
#pragma unroll
    for (int i = 0; i < kChunks; ++i) {
      Fragments f;
      decode_chunk<Config::kType>(chunks[i], shift, f);
      multiply(f, i);
    }
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) d[0][i] += d[1][i];
  ptx::cp_async_commit_group();  // the factors, if no step did
  ptx::cp_async_wait_group<0>();
  __syncthreads();  // the ring is free, the factors are there
  auto* const partials = reinterpret_cast<float*>(memory);
  store_small_m_partials<Config>(d[0], partials, part, strip, lane);
  __syncthreads();
  if constexpr (Config::kSwiglu)
    epilogue_small_m_swiglu<Config>(p, state.of_out, partials, state);
  else
    epilogue_small_m<Config>(p, state.of_out, partials, state);
}

}  // namespace nvfp4::cuda
