#pragma once

#include "backends/cuda/gemm/dequantize_fragments.cuh"
#include "backends/cuda/gemm/sm80/mma_config.cuh"
#include "backends/cuda/ptx/memory.cuh"
#include "backends/cuda/ptx/mma.cuh"

/// Computes a warp's sums by mma.sync: A is W, dequantized in registers, and B is x.
namespace nvfp4::cuda::sm80 {

/// The sums [strip of 16 rows of W][eight rows of x]: D of mma.m16n8k16.
template <class Config>
using Sums = float[Config::kWarpStrips][Config::kOctets][4];

/// The part of the tile that belongs to a warp.
template <class Config>
struct WarpPlace {
  int m, n, part, lane;

  __device__ __forceinline__ WarpPlace() : lane(static_cast<int>(threadIdx.x) % 32) {
    const int warp = __shfl_sync(~0u, static_cast<int>(threadIdx.x) / 32, 0);
    n = warp % Config::kWarps.n;
    m = warp / Config::kWarps.n % Config::kWarps.m;
    part = warp / (Config::kWarps.n * Config::kWarps.m);
  }
};

/// The addresses in a stage that a lane reads.
template <class Config>
struct LaneAddresses {
  static constexpr int kTileStrips = Config::kStrips < 4 ? Config::kStrips : 4;
  static constexpr int kTileOfStage = kTileStrips * kStripBytes;
  std::uint32_t x, codes, scales;

  __device__ __forceinline__ explicit LaneAddresses(const WarpPlace<Config>& at) {
    // Lane 8i + j has the address of row j of matrix i. If there are fewer than eight rows, rows
    // repeat.
    const int row = Config::kTileM < 8 ? at.lane % 8 % Config::kTileM
                                       : at.m * Config::kOctets * 8 + at.lane % 8;
    x = at.part * Config::kXPartBytes + row * (kTileCols * 2) + ((at.lane / 8 ^ row % 8) << 4);
    const int strip = at.n * Config::kWarpStrips;
    const int tile =
        Config::kXBytes + at.part * Config::kWPartBytes + strip / kTileStrips * kTileOfStage;
    codes = tile + strip % kTileStrips * (kTileCodeBytes / 4) + at.lane * 16;
    scales = tile + kTileStrips * (kTileCodeBytes / 4) +
             strip % kTileStrips * (kTileScaleBytes / 4) + at.lane / 4 * 8;
  }
};

/// Multiplies a chunk of 64 columns.
template <class Config>
__device__ __forceinline__ void multiply_chunk(Sums<Config>& d, const LaneAddresses<Config>& at,
                                               std::uint32_t stage, Shift16 shift) {
  static_assert(Config::kWarpStrips <= 4);
  LaneChunk chunk[Config::kWarpStrips];
#pragma unroll
  for (int s = 0; s < Config::kWarpStrips; ++s)
    chunk[s] = {ptx::ld_shared<uint4>(stage + at.codes + s * (kTileCodeBytes / 4)),
                ptx::ld_shared<uint2>(stage + at.scales + s * (kTileScaleBytes / 4))};
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const std::uint32_t x = (stage + at.x) ^ half * 64u;
    // Operations on the same sums are apart, because one takes about 30 cycles.
    constexpr int kMost = Config::kWarpStrips == 1 ? 4 : 2;
    constexpr int kTogether = Config::kOctets < kMost ? Config::kOctets : kMost;
    std::uint32_t a[Config::kWarpStrips][2][4];
#pragma unroll
    for (int s = 0; s < Config::kWarpStrips; ++s) {
      const LaneChunk& c = chunk[s];
      decode_words<Config::kType>(half == 0 ? c.codes.x : c.codes.z,
                                  half == 0 ? c.codes.y : c.codes.w,
                                  half == 0 ? c.scales.x : c.scales.y, shift, a[s][0], a[s][1]);
    }
#pragma unroll
    for (int t0 = 0; t0 < Config::kOctets; t0 += kTogether) {
      uint4 b[kTogether];
#pragma unroll
      for (int t = 0; t < kTogether; ++t)
        b[t] = ptx::ldmatrix_x4(x + (t0 + t) * (8 * kTileCols * 2));
#pragma unroll
      for (int t = 0; t < kTogether; ++t)
#pragma unroll
        for (int s = 0; s < Config::kWarpStrips; ++s)
          ptx::mma_m16n8k16<Config::kType>(d[s][t0 + t], a[s][0], b[t].x, b[t].y);
#pragma unroll
      for (int t = 0; t < kTogether; ++t)
#pragma unroll
        for (int s = 0; s < Config::kWarpStrips; ++s)
          ptx::mma_m16n8k16<Config::kType>(d[s][t0 + t], a[s][1], b[t].z, b[t].w);
    }
  }
}

/// The A operands of two strips and 32 columns.
using HalfFragments = std::uint32_t[2][2][4];

/// Computes the 16 registers of a HalfFragments one by one. A step is short enough to be done
/// between two mma instructions.
template <DType kType>
class Decoder {
 public:
  __device__ __forceinline__ Decoder(const LaneChunk (&chunk)[2], int half, Shift16 shift,
                                     HalfFragments& to)
      : chunk_(chunk), half_(half), shift_(shift), to_(to) {}
  /// Computes register `i`. The calls must be in order, with constant `i`.
  __device__ __forceinline__ void step(int i) {
    const LaneChunk& c = chunk_[i / 8];
    const std::uint32_t u = half_ == 0 ? c.codes.x : c.codes.z;
    const std::uint32_t v = half_ == 0 ? c.codes.y : c.codes.w;
    if (i % 8 == 0) {
      const std::uint32_t scales = half_ == 0 ? c.scales.x : c.scales.y;
      su_ = scale_pair<kType>(scales, 0, shift_);
      sv_ = scale_pair<kType>(scales, 1, shift_);
      shared_ = shared_pairs(u, v);
    }
    const std::uint32_t scale = i % 8 < 4 ? su_ : sv_;
    const std::uint32_t pair = pair_of_word(i % 8 < 4 ? u : v, shared_, i % 8 / 4, i % 4);
    to_[i / 8][i % 8 / 4][i % 4] =
        i % 2 == 0 ? scaled<kType, false>(pair, scale) : scaled<kType, true>(pair, scale);
  }
  __device__ __forceinline__ void all() {
#pragma unroll
    for (int i = 0; i < 16; ++i) step(i);
  }

 private:
  const LaneChunk (&chunk_)[2];
  int half_;
  Shift16 shift_;
  HalfFragments& to_;
  std::uint32_t su_, sv_, shared_;
};

/// Multiplies 32 columns while `decoder` prepares the next ones. `x` is the lane's address.
template <class Config>
__device__ __forceinline__ void multiply_half(Sums<Config>& d, const HalfFragments& a,
                                              std::uint32_t x, Decoder<Config::kType> decoder) {
  static_assert(Config::kWarpStrips == 2 && Config::kOctets % 4 == 0);
  constexpr int kTogether = 2, kGroups = Config::kOctets / kTogether;
  constexpr int kSteps = 16 / kGroups;  // decoder steps beside a group of mma instructions
  constexpr int kOctetBytes = 8 * kTileCols * 2;
  uint4 b[2][kTogether];
#pragma unroll
  for (int t = 0; t < kTogether; ++t) b[0][t] = ptx::ldmatrix_x4(x + t * kOctetBytes);
#pragma unroll
  for (int group = 0; group < kGroups; ++group) {
    const int t0 = group * kTogether;
    __syncwarp();  // otherwise ptxas loads all of x first, and too few registers remain
    if (group + 1 < kGroups)
#pragma unroll
      for (int t = 0; t < kTogether; ++t)
        b[(group + 1) % 2][t] = ptx::ldmatrix_x4(x + (t0 + kTogether + t) * kOctetBytes);
    const uint4(&now)[kTogether] = b[group % 2];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      // Operations on the same sums are four apart.
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        const int t = i % 2, k = i / 2;
        ptx::mma_m16n8k16<Config::kType>(d[j][t0 + t], a[j][k], k == 0 ? now[t].x : now[t].z,
                                         k == 0 ? now[t].y : now[t].w);
      }
#pragma unroll
      for (int step = 0; step < kSteps; ++step)
        if (step * 4 / kSteps == i) decoder.step(group * kSteps + step);
    }
  }
}

}  // namespace nvfp4::cuda::sm80
