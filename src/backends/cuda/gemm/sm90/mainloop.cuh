#pragma once

#include <type_traits>

#include "backends/cuda/gemm/dequantize_fragments.cuh"
#include "backends/cuda/gemm/sm90/pipeline.cuh"
#include "backends/cuda/gemm/sm90/stream_k.cuh"
#include "backends/cuda/gemm/sm90/wgmma_config.cuh"

/// Multiplies stages of W and x. While the tensor cores multiply a chunk of 64 columns, the next
/// chunk is dequantized.
namespace nvfp4::cuda {

inline constexpr int kStaggerBarrier = 5;  ///< barrier at which warpgroups wait for the first one

/// Calls multiply with the smallest M of the tile that covers `rows`.
template <class Config, int kIndex = 0, class Multiply>
__device__ __forceinline__ void dispatch_m_shape(int rows, const Multiply& multiply) {
  constexpr int kM = Config::template kShape<kIndex>;
  if constexpr (kM >= Config::kWarpgroupM) {
    multiply(std::integral_constant<int, Config::kWarpgroupM>{});
  } else {
    if (rows <= kM) return multiply(std::integral_constant<int, kM>{});
    dispatch_m_shape<Config, kIndex + 1>(rows, multiply);
  }
}

/// The part of a tile that belongs to a warpgroup, and its thread.
template <class Config>
struct Place {
  int warpgroup, warp, lane;

  __device__ __forceinline__ explicit Place(int warpgroup_)
      : warpgroup(warpgroup_), warp(threadIdx.x / 32 % 4), lane(threadIdx.x % 32) {}
  __device__ __forceinline__ int n_group() const { return Config::kNGroups > 1 ? warpgroup : 0; }
  __device__ __forceinline__ int m_group() const { return Config::kMGroups == 2 ? warpgroup : 0; }
  __device__ __forceinline__ int k_group() const { return Config::kKGroups == 2 ? warpgroup : 0; }
};

/// Multiplies one chunk by mma.sync or wgmma.
template <class Config>
struct Multiplier {
  /// The position of x. For mma: the address that a lane reads, in rows of 128 bytes with swizzled
  /// pieces of 16 bytes. For wgmma: a descriptor in units of 16 bytes. Offsets of it have 64 bits
  /// from the start, so that an addition is one instruction and delays dequantization least.
  using XAt = std::conditional_t<Config::kMmaSync, std::uint32_t, std::uint64_t>;
  static constexpr XAt kUnit = Config::kMmaSync ? 1 : 16;

  __device__ __forceinline__ static XAt at(std::uint32_t x, int lane) {
    if constexpr (Config::kMmaSync)
      return x + lane % 8 * 128 + ((lane / 8 ^ lane % 8) << 4);
    else
      return ptx::matrix_descriptor_128b(x);
  }
  /// Multiplies steps kFirst to kLast of 16 columns, for the first kM rows of x.
  template <int kM, int kFirst, int kLast, int kSums>
  __device__ __forceinline__ static void run(float (&d)[kSums], const Fragments& f, XAt x) {
    if constexpr (Config::kMmaSync) {
      const uint4 low = ptx::ldmatrix_x4(x), high = ptx::ldmatrix_x4(x ^ 64);
      ptx::mma_m16n8k16<Config::kType>(d, f[0], low.x, low.y);
      ptx::mma_m16n8k16<Config::kType>(d, f[1], low.z, low.w);
      ptx::mma_m16n8k16<Config::kType>(d, f[2], high.x, high.y);
      ptx::mma_m16n8k16<Config::kType>(d, f[3], high.z, high.w);
    } else {
      ptx::wgmma_fence();
#pragma unroll
      for (int k = kFirst; k < kLast; ++k) ptx::wgmma_m64k16<Config::kType, kM>(d, f[k], x + k * 2);
      ptx::wgmma_commit_group();
    }
  }
  template <int kInFlight>
  __device__ __forceinline__ static void wait() {
    if constexpr (!Config::kMmaSync) ptx::wgmma_wait_group<kInFlight>();
  }
};

template <class Config>
class Mainloop {
 public:
  using Sums = float[Config::kWarpgroupM / 2];

  __device__ __forceinline__ Mainloop(const KernelArguments& p, const Ring& ring,
                                      const KRange& range, const PartialSlot<Config>& partial,
                                      const Place<Config>& place)
      : p_(p), ring_(ring), range_(range), partial_(partial), place_(place) {
    // Without the remainder, ptxas computes the addresses of two parts for each chunk.
    part_ = place.k_group() % Config::kKGroups;
    const std::uint32_t w = ring.w + place.n_group() * Config::kWRowBytes +
                            part_ * (Config::kWarpgroupChunks * kTileBytes);
    codes_at_ = w + place.warp * 512 + place.lane * 16;
    scales_at_ = w + kTileCodeBytes + place.warp * 64 + place.lane / 4 * 8;
    x_chunk_ = p.x_box * (kTileCols * 2 / Multiply::kUnit);
    x_first_ =
        Multiply::at(ring.x + part_ * (Config::kWarpgroupChunks * p.x_box * (kTileCols * 2)) +
                         place.m_group() * (Config::kWarpgroupM * kTileCols * 2),
                     place.lane);
    shift_ = {p.sixteen};
  }

  /// Staggers blocks with several tiles: the other warpgroups start two stages after the first one.
  /// Then one multiplies while the others store.
  __device__ __forceinline__ void stagger(bool has_more_tiles) {
    in_step_ = kStagger && p_.split_k == 1 && has_more_tiles;
  }

  /// Computes d += W · xᵀ of a tile, for the first kM rows of x of the warpgroup. kPartial: one
  /// slot of the ring is reserved for a stream-K block's sums.
  template <int kM, bool kPartial>
  __device__ __forceinline__ void run(Sums& d) {
    Decoded a;
    before_ = -1;
    int stage = 0;
    wait_for_first();
    // One stage at a time takes fewer registers. Its number of chunks must be even for the
    // fragments.
    constexpr int kAtOnce = Config::kSingleTile && Config::kNGroups > 1 ? 1 : 2;
    static_assert(kAtOnce == 2 || Config::kWarpgroupChunks % 2 == 0);
#pragma unroll 1
    for (int end = kPartial ? min(range_.whole, partial_.first) : range_.whole;;
         end = range_.whole) {
#pragma unroll 1
      for (; stage + kAtOnce - 1 < end; stage += kAtOnce) {
        run_stage<kM, 0>(d, a);
        if constexpr (kAtOnce == 2) run_stage<kM, 1>(d, a);
        let_follow();
      }
      if (!kPartial || end == range_.whole) break;
      const int last_stage = before_;
      advance();
      before_ = last_stage;
    }
    let_follow();  // for tiles of few stages
    if (kAtOnce == 2 && stage < range_.whole) run_stage<kM, 0>(d, a);
    if (range_.whole < range_.last - range_.first) run_short_stage<kM>(d, a);
    Multiply::template wait<0>();
  }
  /// Releases the last stage of a tile to the producer.
  __device__ __forceinline__ void release_last() { release(before_); }

 private:
  using Multiply = Multiplier<Config>;
  using XAt = typename Multiply::XAt;
  using Decoded = Fragments[2];
  static constexpr bool kStagger = Config::kOwnsMultiprocessor && Config::kKGroups == 1;
  /// With 64 rows of x the tensor cores would wait for a whole chunk.
  static constexpr bool kHalves = Config::kTileM == 64 && Config::kOwnsMultiprocessor;

  __device__ __forceinline__ void wait_for_first() {
    if (kStagger && in_step_ && place_.warpgroup > 0) {
      ptx::named_barrier_sync(kStaggerBarrier, Config::kConsumers);
      in_step_ = false;
    }
  }
  __device__ __forceinline__ void let_follow() {
    if (kStagger && in_step_) {
      ptx::named_barrier_arrive(kStaggerBarrier, Config::kConsumers);
      in_step_ = false;
    }
  }
  __device__ __forceinline__ XAt x_of(int slot) const {
    return x_first_ + static_cast<std::uint32_t>(slot) * XAt{Config::kXBytes / Multiply::kUnit};
  }
  __device__ __forceinline__ LaneChunk load(int slot, int chunk) const {
    const std::uint32_t at = slot * Config::kWBytes + chunk * kTileBytes;
    return {ptx::ld_shared<uint4>(codes_at_ + at), ptx::ld_shared<uint2>(scales_at_ + at)};
  }
  __device__ __forceinline__ void release(int slot) const {
    __syncwarp();  // all lanes have read
    if (slot >= 0 && ptx::arrives_for_group(place_.lane))
      ptx::mbarrier_arrive(ring_.empty + slot * 8);
  }
  __device__ __forceinline__ void advance() {
    before_ = slot_;
    const bool wrap = slot_ == Config::kStages - 1;
    slot_ = wrap ? 0 : slot_ + 1;
    phase_ ^= wrap ? 1 : 0;
  }

  /// Multiplies a stage with all its chunks, the kParity-th of two.
  template <int kM, int kParity>
  __device__ __forceinline__ void run_stage(Sums& d, Decoded& a) {
    ptx::mbarrier_wait_parity(ring_.full + slot_ * 8, phase_);
    LaneChunk next = load(slot_, 0);
    const int slot = slot_, stage_before = before_;
    const XAt x = x_of(slot);
    advance();
#pragma unroll
    for (int c = 0; c < Config::kWarpgroupChunks; ++c) {
      const LaneChunk chunk = next;
      if (c + 1 < Config::kWarpgroupChunks) next = load(slot, c + 1);
      Fragments& f = a[(c + kParity * Config::kWarpgroupChunks) % 2];
      if constexpr (kHalves) {
        // Same as decode_chunk(): with a lambda for each half ptxas serialized an FP16 kernel.
        decode_words<Config::kType>(chunk.codes.x, chunk.codes.y, chunk.scales.x, shift_, f[0],
                                    f[1]);
        Multiply::template run<kM, 0, 2>(d, f, x + c * x_chunk_);
        decode_words<Config::kType>(chunk.codes.z, chunk.codes.w, chunk.scales.y, shift_, f[2],
                                    f[3]);
        Multiply::template run<kM, 2, 4>(d, f, x + c * x_chunk_);
        Multiply::template wait<2>();
      } else {
        decode_chunk<Config::kType>(chunk, shift_, f);
        Multiply::template run<kM, 0, 4>(d, f, x + c * x_chunk_);
        Multiply::template wait<1>();
      }
      if (c == 0) release(stage_before);
    }
  }
  /// Multiplies the last stage of K, if it has fewer chunks.
  template <int kM>
  __device__ __forceinline__ void run_short_stage(Sums& d, Decoded& a) {
    ptx::mbarrier_wait_parity(ring_.full + slot_ * 8, phase_);
    const int left = p_.chunks % Config::kStageChunks - part_ * Config::kWarpgroupChunks;
    for (int c = 0; c < min(left, Config::kWarpgroupChunks); ++c) {
      Multiply::template wait<0>();
      decode_chunk<Config::kType>(load(slot_, c), shift_, a[0]);
      Multiply::template run<kM, 0, 4>(d, a[0], x_of(slot_) + c * x_chunk_);
    }
    release(before_);
    advance();
  }

  const KernelArguments& p_;
  const Ring& ring_;
  const KRange& range_;
  const PartialSlot<Config>& partial_;
  const Place<Config>& place_;
  int part_;  ///< part of a stage
  std::uint32_t codes_at_, scales_at_;
  XAt x_chunk_, x_first_;
  Shift16 shift_;
  int slot_ = 0, before_ = -1;  ///< current stage and the previous one
  std::uint32_t phase_ = 0;
  bool in_step_ = false;
};

}  // namespace nvfp4::cuda
