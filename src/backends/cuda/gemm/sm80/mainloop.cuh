#pragma once

#include "backends/cuda/gemm/dequantize_fragments.cuh"
#include "backends/cuda/gemm/sm80/mma_config.cuh"
#include "backends/cuda/ptx/memory.cuh"
#include "backends/cuda/ptx/mma.cuh"

/// A warp's sums: W, decoded in registers, as A of mma.sync, x as B.
namespace nvfp4::cuda::sm80 {

/// [strip of 16 rows of W][eight rows of x]: D of mma.m16n8k16.
template <class Config>
using Sums = float[Config::kWarpStrips][Config::kOctets][4];

/// Which part of the tile a warp has.
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

/// Where a lane reads in a stage.
template <class Config>
struct LaneAddresses {
  std::uint32_t x, codes, scales;

  __device__ __forceinline__ explicit LaneAddresses(const WarpPlace<Config>& at) {
    // Lane 8i + j has the address of row j of matrix i. Fewer than eight rows are there again.
    const int row = Config::kTileM < 8 ? at.lane % 8 % Config::kTileM
                                       : at.m * Config::kOctets * 8 + at.lane % 8;
    x = (at.part * Config::kTileM + row) * (kTileCols * 2) + ((at.lane / 8 ^ row % 8) << 4);
    const int strip = at.part * Config::kStrips + at.n * Config::kWarpStrips;
    codes = Config::kXBytes + strip * kStripBytes + at.lane * 16;
    scales = Config::kXBytes + strip * kStripBytes + kTileCodeBytes / 4 + at.lane / 4 * 8;
  }
};

/// Sums of a chunk of 64 columns.
template <class Config>
__device__ __forceinline__ void multiply_chunk(Sums<Config>& d, const LaneAddresses<Config>& at,
                                               std::uint32_t stage, Shift16 shift) {
  LaneChunk chunk[Config::kWarpStrips];
#pragma unroll
  for (int s = 0; s < Config::kWarpStrips; ++s)
    chunk[s] = {ptx::ld_shared<uint4>(stage + at.codes + s * kStripBytes),
                ptx::ld_shared<uint2>(stage + at.scales + s * kStripBytes)};
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    std::uint32_t a[Config::kWarpStrips][2][4];
#pragma unroll
    for (int s = 0; s < Config::kWarpStrips; ++s) {
      const LaneChunk& c = chunk[s];
      decode_words<Config::kType>(half == 0 ? c.codes.x : c.codes.z,
                                  half == 0 ? c.codes.y : c.codes.w,
                                  half == 0 ? c.scales.x : c.scales.y, shift, a[s][0], a[s][1]);
    }
    const std::uint32_t x = (stage + at.x) ^ half * 64u;
    // Products that add to the same sums are apart: one takes some 30 cycles.
    constexpr int kMost = Config::kWarpStrips == 1 ? 4 : 2;
    constexpr int kTogether = Config::kOctets < kMost ? Config::kOctets : kMost;
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

}  // namespace nvfp4::cuda::sm80
