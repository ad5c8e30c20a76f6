#pragma once

#include "backends/cuda/device/routing.cuh"
#include "backends/cuda/gemm/arguments.h"
#include "backends/cuda/gemm/dequantize_fragments.cuh"
#include "backends/cuda/gemm/sm90/epilogue_small_m.cuh"
#include "backends/cuda/gemm/sm90/kernels.h"
#include "backends/cuda/ptx/ptx.cuh"
#include "backends/moe_job.h"

/// Computes outᵀ = W · xᵀ for one row of x by mma.sync, with the weights that a routing names. A
/// warp has a strip of 16 rows of W and a part of K, and loads its own weights. The whole row of x
/// is in shared memory from the start. So no warp waits for another until the parts are added.
///
/// A block takes half of a multiprocessor, like small_m_gemm_kernel, up to K = 38 000.
namespace nvfp4::cuda {

template <int kTileN>
struct RoutedState {
  std::uint64_t x_there;
  float w_global[kTileN], bias[kTileN], x_global[1], alpha;
  WorkTile of_out;  ///< arguments of the epilogue, kept out of registers
};

template <DType kTypeOf, int kTileNOf, bool kSwigluOf>
struct RoutedConfig {
  static constexpr DType kType = kTypeOf;
  static constexpr bool kSwiglu = kSwigluOf;
  static constexpr int kTileM = 1, kTileN = kTileNOf;
  static constexpr KernelConfig kTile{kTileM, kTileN, 1};
  static constexpr int kStrips = kTileN / 16, kParts = small_m_k_parts(kTile);
  static constexpr int kWarps = kStrips * kParts, kThreads = 32 * kWarps;
  static constexpr int kChunks = 2;  ///< chunks of a part in a stage: a pair
  /// Two stages, because blocks of the next kernel load their stages early and take bandwidth from
  /// this kernel. More loads in flight also spread the ends of blocks (four stages: 6 % slower).
  static constexpr int kStages = 2;
  static constexpr int kCodeBytes = 16 * kTileCols / 2, kScaleBytes = 16 * kTileCols / 16;
  static constexpr int kXChunkBytes = kTileCols * 2;
  static constexpr int kWarpBytes = kChunks * (kCodeBytes + kScaleBytes);
  static constexpr int kStageBytes = kWarps * kWarpBytes;
  static constexpr int kRingBytes = kStages * kStageBytes;
  static constexpr int kPartialStride = kTileN + 4;  ///< floats between parts
  static constexpr int kStateOffset = kRingBytes;
  static constexpr int kXOffset =
      kStateOffset + static_cast<int>(round_up(sizeof(RoutedState<kTileN>), 16));
  /// Returns the size with x and zero padding to the end of a stage.
  NVFP4_HD static constexpr int shared_bytes(int chunks) {
    return kXOffset + static_cast<int>(round_up(chunks, kChunks)) * kXChunkBytes;
  }
  static constexpr int kSharedBytes = 227 * 1024;  ///< maximum
  static_assert(kParts * kPartialStride * 4 <= kRingBytes);
  static_assert(shared_bytes(kMostRoutedDepth / kTileCols) <= kSharedBytes);
};

/// Loads the weights of a warp: pairs of chunks, interleaved with the other parts of K.
template <class Config>
class RoutedLoader {
 public:
  __device__ __forceinline__ RoutedLoader(const KernelArguments& p, const WorkTile& work, int warp,
                                          int lane, std::uint8_t* memory, std::uint32_t base) {
    const int strip = warp % Config::kStrips, part = warp / Config::kStrips;
    // The last of several tiles of 64 rows may be missing.
    const int tile = work.n_tile * Config::kStrips + strip;  // tile of 16 rows
    const int pairs = (p.chunks + 1) / kChunks;
    const bool has_half = p.chunks % kChunks != 0 && (pairs - 1 - part) % Config::kParts == 0;
    count =
        tile / 4 < p.n_tiles
            ? kChunks * ((pairs - part + Config::kParts - 1) / Config::kParts) - (has_half ? 1 : 0)
            : 0;
    from_ = p.weights + work.group * p.group_bytes +
            (static_cast<std::int64_t>(tile / 4) * p.chunks + kChunks * part) * kTileBytes +
            tile % 4 * Config::kCodeBytes + lane * 16 + kTileBytes / 2;
    // Lanes 0 to 7 load the scales, four lanes for each chunk.
    const int of_chunk = lane / 4;
    scales_from_ = from_ - lane * 16 - kTileBytes / 2 + kTileCodeBytes +
                   tile % 4 * (Config::kScaleBytes - Config::kCodeBytes) + lane % 4 * 16 +
                   of_chunk * kTileBytes;
    const std::uint32_t warp_at = base + warp * Config::kWarpBytes;
    codes_at_ = warp_at + lane * 16;
    scales_at_ = warp_at + kChunks * Config::kCodeBytes + lane / 4 * 8;
    scales_to_ = warp_at + kChunks * Config::kCodeBytes + lane * 16;
    scales_before_ = of_chunk < kChunks ? of_chunk : 1 << 30;
    // A missing chunk is multiplied by zeros of x, so its scales must not be NaN.
    if (has_half)
      for (int i = 0; i < Config::kStages; ++i)
        *reinterpret_cast<std::uint16_t*>(memory + i * Config::kStageBytes +
                                          warp * Config::kWarpBytes + kChunks * Config::kCodeBytes +
                                          Config::kScaleBytes + lane * 2) = 0;
    __syncwarp();
  }
  /// Starts the copies of a stage; `ahead` chunks remain.
  __device__ __forceinline__ void load(std::uint32_t stage, int ahead) {
#pragma unroll
    for (int i = 0; i < kChunks; ++i)
      if (ahead > i)
        ptx::cp_async_16(codes_at_ + stage + i * Config::kCodeBytes,
                         from_ + (2 * i - 1) * (kTileBytes / 2));
    if (scales_before_ < ahead) ptx::cp_async_16(scales_to_ + stage, scales_from_);
    ptx::cp_async_commit_group();
    from_ += kStep;
    scales_from_ += kStep;
  }
  __device__ __forceinline__ LaneChunk chunk(std::uint32_t stage, int i) const {
    return {ptx::ld_shared<uint4>(codes_at_ + stage + i * Config::kCodeBytes),
            ptx::ld_shared<uint2>(scales_at_ + stage + i * Config::kScaleBytes)};
  }
  /// Forces one addition for each pointer and step. Otherwise the compiler computes
  /// addresses from the pointers' values before the loop.
  __device__ __forceinline__ void pin() { asm volatile("" : "+l"(from_), "+l"(scales_from_)); }

  int count;  ///< number of chunks of the warp

 private:
  static constexpr int kChunks = Config::kChunks;
  /// Bytes between stages. Pointers lie between the chunks of a pair: offsets of copies reach 2 KB.
  static constexpr int kStep = kChunks * Config::kParts * kTileBytes;

  const std::uint8_t *from_, *scales_from_;
  std::uint32_t codes_at_, scales_at_, scales_to_;
  int scales_before_;
};

/// Computes the sums of a warp's strip and part of K. All columns of mma.sync hold the same row of
/// x.
template <class Config>
class RoutedMainloop {
 public:
  using Sums = float[Config::kChunks][4];  ///< one set for each chunk shortens dependencies

  __device__ __forceinline__ RoutedMainloop(const KernelArguments& p, RoutedLoader<Config>& loader)
      : loader_(loader), shift_{p.sixteen}, ahead_(loader.count - kChunks * Config::kStages) {}

  /// Dequantizes the first chunks and loads the next ones, before x has arrived.
  __device__ __forceinline__ void decode_first(Fragments (&first)[Config::kChunks]) {
    ptx::cp_async_wait_group<Config::kStages - 1>();
    __syncwarp();
    if (loader_.count > 0)  // a separate block, otherwise ptxas moves it after the wait
#pragma unroll
      for (int i = 0; i < kChunks; ++i)
        decode_chunk<Config::kType>(loader_.chunk(0, i), shift_, first[i]);
    load_next();
  }
  /// `x_at` is the lane's address of the first chunk of the part.
  __device__ __forceinline__ void run(Sums& d, const Fragments (&first)[Config::kChunks],
                                      std::uint32_t x_at) {
    if (loader_.count > 0)
#pragma unroll
      for (int i = 0; i < kChunks; ++i) multiply(d, first[i], x_at, i);
    loader_.pin();
    asm volatile("" : "+r"(ahead_));
#pragma unroll 1
    while (ahead_ > -kChunks * Config::kStages) {
      ptx::cp_async_wait_group<Config::kStages - 1>();
      __syncwarp();
      LaneChunk chunks[kChunks];
#pragma unroll
      for (int i = 0; i < kChunks; ++i) chunks[i] = loader_.chunk(stage_, i);
      load_next();
      x_at += kChunks * Config::kParts * Config::kXChunkBytes;
#pragma unroll
      for (int i = 0; i < kChunks; ++i) {
        Fragments f;
        decode_chunk<Config::kType>(chunks[i], shift_, f);
        multiply(d, f, x_at, i);
      }
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) d[0][i] += d[1][i];
  }

 private:
  static constexpr int kChunks = Config::kChunks;

  __device__ __forceinline__ void load_next() {
    __syncwarp();  // all lanes have read
    loader_.load(stage_, ahead_);
    ahead_ -= kChunks;
    stage_ = stage_ == Config::kRingBytes - Config::kStageBytes ? 0 : stage_ + Config::kStageBytes;
  }
  __device__ __forceinline__ static void multiply(Sums& d, const Fragments& f, std::uint32_t x_at,
                                                  int i) {
    const std::uint32_t x = x_at + i * Config::kXChunkBytes;
    const uint4 low = ptx::ldmatrix_x4(x), high = ptx::ldmatrix_x4(x + 64);
    ptx::mma_m16n8k16<Config::kType>(d[i], f[0], low.x, low.y);
    ptx::mma_m16n8k16<Config::kType>(d[i], f[1], low.z, low.w);
    ptx::mma_m16n8k16<Config::kType>(d[i], f[2], high.x, high.y);
    ptx::mma_m16n8k16<Config::kType>(d[i], f[3], high.z, high.w);
  }

  RoutedLoader<Config>& loader_;
  Shift16 shift_;
  std::uint32_t stage_ = 0;
  int ahead_;  ///< chunks that remain after the stages in flight
};

/// The row of out of a block. Blocks of the same row are adjacent in the grid.
struct RoutedRow {
  int n_tile, row, token, choice;

  __device__ __forceinline__ RoutedRow(const KernelArguments& p, int tile_n) {
    const int n_tiles = (p.n + tile_n - 1) / tile_n;
    row = static_cast<int>(blockIdx.x) / n_tiles;
    token = row / static_cast<int>(p.routing.top_k);
    choice = row - token * static_cast<int>(p.routing.top_k);
    n_tile = static_cast<int>(blockIdx.x) - row * n_tiles;
  }
};

template <class Config>
__global__ void __launch_bounds__(Config::kThreads, 2)
    routed_gemm_kernel(const __grid_constant__ KernelArguments p) {
  extern __shared__ __align__(1024) std::uint8_t memory[];
  auto& state = *reinterpret_cast<RoutedState<Config::kTileN>*>(memory + Config::kStateOffset);
  const int lane = ptx::laneid();
  const int warp = __shfl_sync(~0u, static_cast<int>(threadIdx.x) / 32, 0);
  const std::uint32_t base = ptx::cvta_shared(memory), x_there = ptx::cvta_shared(&state.x_there);
  if (threadIdx.x == 0) {
    ptx::mbarrier_init(x_there, 1);
    ptx::fence_mbarrier_init();
  }
  for (int i = Config::kXOffset + p.k * 2 + static_cast<int>(threadIdx.x) * 16;
       i < Config::shared_bytes(p.chunks); i += Config::kThreads * 16)
    *reinterpret_cast<uint4*>(memory + i) = {};

  const RoutedRow place(p, Config::kTileN);
  WorkTile work;
  work.n_tile = place.n_tile;
  work.m = place.row / p.rows_of_token;
  work.m_end = work.m + 1;
  // Weights do not depend on the previous kernel. Everything that it may have written is read
  // later.
  if (!p.ends_settled) ptx::griddepcontrol_wait();
  work.group = expert_at(p.routing, place.token, place.choice, p.groups);
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
  if (threadIdx.x == 0) state.of_out = {work.group, work.n_tile, place.row, place.row + 1};

  RoutedLoader<Config> loader(p, work, warp, lane, memory, base);
#pragma unroll
  for (int i = 0; i < Config::kStages; ++i)
    loader.load(i * Config::kStageBytes, loader.count - Config::kChunks * i);
  RoutedMainloop<Config> mainloop(p, loader);
  Fragments first[Config::kChunks];
  mainloop.decode_first(first);

  ptx::griddepcontrol_wait();
  ptx::griddepcontrol_launch_dependents();
  if (p.ends_settled) load_x();
  prefetch_epilogue_factors<Config>(p, work, state);

  const int strip = warp % Config::kStrips, part = warp / Config::kStrips;
  typename RoutedMainloop<Config>::Sums d = {};
  const std::uint32_t x_at =
      base + Config::kXOffset + Config::kChunks * part * Config::kXChunkBytes + lane / 8 * 16;
  ptx::mbarrier_wait_parity(x_there, 0);
  mainloop.run(d, first, x_at);
  ptx::cp_async_commit_group();  // the factors, if no step committed them
  ptx::cp_async_wait_group<0>();
  __syncthreads();  // the ring is free, and the factors have arrived
  auto* const partials = reinterpret_cast<float*>(memory);
  store_small_m_partials<Config>(d[0], partials, part, strip, lane);
  __syncthreads();
  if constexpr (Config::kSwiglu)
    epilogue_small_m_swiglu<Config>(p, state.of_out, partials, state);
  else
    epilogue_small_m<Config>(p, state.of_out, partials, state);
}

}  // namespace nvfp4::cuda
