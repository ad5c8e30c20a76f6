#pragma once

#include "backends/cuda/gemm/sm120/weights.cuh"
#include "backends/cuda/gemm/sm120/x_loader.cuh"
#include "backends/cuda/gemm/sm80/mainloop.cuh"
#include "backends/cuda/ptx/mma.cuh"

/// Computes a warp's sums with W as A and x as B, both quantized.
namespace nvfp4::cuda::sm120 {

/// The addresses in a stage that a lane reads.
template <class Config>
struct LaneAddresses {
  static constexpr int kTileStrips = Config::kStrips < 4 ? Config::kStrips : 4;
  std::uint32_t x, x_scales, codes, scales;

  __device__ __forceinline__ explicit LaneAddresses(const sm80::WarpPlace<Config>& at) {
    const int of_x = at.part * Config::kXPartBytes;
    // Lane 8i + j has the address of row j of matrix i: both pieces of eight rows, then those of
    // the next eight. If there are only eight rows, they repeat.
    const int row = Config::kOctets > 1 ? at.lane / 16 * 8 + at.lane % 8 : at.lane % 8;
    x = of_x + code_piece_at(row, at.lane / 8 % 2);
    x_scales = of_x + Config::kTileM * kRowBytes + at.lane / 4 * Config::kScaleStride * 4;
    const int strip = at.n * Config::kWarpStrips;
    const int tile = Config::kXBytes + at.part * Config::kWPartBytes +
                     strip / kTileStrips * (kTileStrips * sm80::kStripBytes);
    codes = tile + strip % kTileStrips * (kTileCodeBytes / 4) + at.lane / 4 * 64;
    scales = tile + kTileStrips * (kTileCodeBytes / 4) +
             strip % kTileStrips * (kTileScaleBytes / 4) + at.lane / 4 * 8;
  }
};

/// The A operand and its scales for a strip of 16 rows of W.
struct StripFragments {
  std::uint32_t a[4], scales;

  __device__ __forceinline__ void load(std::uint32_t codes_at, std::uint32_t scales_at,
                                       const LanePairs& lane) {
    uint4 words[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) words[i] = ptx::ld_shared<uint4>(codes_at + i * 16);
    a_of_words(words, lane, a);
    scales = a_scales_of(ptx::ld_shared<uint2>(scales_at), lane);
  }
};

/// The scales of kCount groups of eight rows of x. A lane has row g of each group.
template <int kCount>
struct XScales {
  std::uint32_t of[kCount];

  __device__ __forceinline__ explicit XScales(std::uint32_t at) {
    if constexpr (kCount == 4) {
      const uint4 v = ptx::ld_shared<uint4>(at);
      of[0] = v.x;
      of[1] = v.y;
      of[2] = v.z;
      of[3] = v.w;
    } else {
      const uint2 v = ptx::ld_shared<uint2>(at);
      of[0] = v.x;
      if constexpr (kCount == 2) of[1] = v.y;
    }
  }
};

/// Multiplies a chunk of 64 columns.
template <class Config>
__device__ __forceinline__ void multiply_chunk(sm80::Sums<Config>& d,
                                               const LaneAddresses<Config>& at,
                                               const LanePairs& lane, std::uint32_t stage) {
  using Product = typename Config::Product;
  StripFragments w[Config::kWarpStrips];
#pragma unroll
  for (int s = 0; s < Config::kWarpStrips; ++s)
    w[s].load(stage + at.codes + s * (kTileCodeBytes / 4),
              stage + at.scales + s * (kTileScaleBytes / 4), lane);
  // Two blocks with this many sums have too few registers for more.
  constexpr int kMost = Config::kOctets >= 16 && Config::kBlocks * Config::kThreads > 256 ? 2 : 4;
  constexpr int kTogether = Config::kOctets < kMost ? Config::kOctets : kMost;
#pragma unroll
  for (int t0 = 0; t0 < Config::kOctets; t0 += kTogether) {
    if (kMost < 4) __syncwarp();  // prevents earlier loads
    const XScales<kTogether> scales(stage + at.x_scales + t0 * 4);
    uint4 b[(kTogether + 1) / 2];
#pragma unroll
    for (int i = 0; i < (kTogether + 1) / 2; ++i)
      b[i] = ptx::ldmatrix_x4(stage + at.x + (t0 + 2 * i) * (8 * kRowBytes));
#pragma unroll
    for (int t = 0; t < kTogether; ++t)
#pragma unroll
      for (int s = 0; s < Config::kWarpStrips; ++s)
        Product::multiply(d[s][t0 + t], w[s].a, t % 2 == 0 ? b[t / 2].x : b[t / 2].z,
                          t % 2 == 0 ? b[t / 2].y : b[t / 2].w, w[s].scales, scales.of[t]);
  }
}

}  // namespace nvfp4::cuda::sm120
