#pragma once

#include "backends/cuda/gemm/dequantize_fragments.cuh"
#include "backends/cuda/gemm/fragment_tile.h"
#include "backends/cuda/ptx/cvt_e4m3.cuh"

/// Decodes tiles of fragments_64x64 to rows of E4M3.
namespace nvfp4::cuda::fp8 {

/// Transposes 4 x 4 words of a quad: word j of lane q becomes word q of lane j.
__device__ __forceinline__ void transpose(std::uint32_t (&v)[4], int lane) {
#pragma unroll
  for (int step = 2; step > 0; step /= 2) {
    const bool upper = (lane & step) != 0;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if ((i & step) != 0) continue;
      const std::uint32_t got = __shfl_xor_sync(~0u, upper ? v[i] : v[i + step], step);
      (upper ? v[i] : v[i + step]) = got;
    }
  }
}

/// Returns what turns a widened scale into scale / power · 2^6 in FP16: see scale_pair().
__device__ __forceinline__ std::uint32_t scale_offset(float power) {
  const int exponent = static_cast<int>(__float_as_uint(power) >> 23) - 127;
  return static_cast<std::uint32_t>(0x2C00 - (exponent << 10)) & 0xFFFFu;
}

/// Returns E4M3 of a pair of codes times the scale of their row, by power. The factor 2^-8 of
/// fragments keeps the product exact; 256 · product is at most 448.
template <bool kUpper>
__device__ __forceinline__ std::uint32_t code_pair(std::uint32_t codes, std::uint32_t scales) {
  const std::uint32_t v = scaled<DType::f16, kUpper>(codes, scales);
  constexpr std::uint32_t k256 = 0x5C005C00;
  const __half2 product =
      __hmul2(reinterpret_cast<const __half2&>(v), reinterpret_cast<const __half2&>(k256));
  return ptx::cvt_e4m3x2_f16x2(reinterpret_cast<const std::uint32_t&>(product));
}

/// Decodes the part of a warp: 16 rows of a tile. Lane 4g + q returns columns [16q, 16q + 16) of
/// rows g and g + 8. `powers` are of these two rows.
__device__ __forceinline__ void decode_lane(const LaneChunk& chunk, const float (&powers)[2],
                                            int lane, uint4 (&rows)[2]) {
  const std::uint32_t offsets = scale_offset(powers[0]) | scale_offset(powers[1]) << 16;
  const std::uint32_t words[4] = {chunk.codes.x, chunk.codes.y, chunk.codes.z, chunk.codes.w};
  std::uint32_t blocks[2][4];  // of each row: two pairs of columns, 8 apart
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    const std::uint32_t bytes = j < 2 ? chunk.scales.x : chunk.scales.y;
    const std::uint32_t scales =
        (j % 2 == 0 ? bytes & 0x00FF00FFu : __byte_perm(bytes, 0, 0x4341)) * 128 + offsets;
    const std::uint32_t shared = shared_pairs(words[j / 2 * 2], words[j / 2 * 2 + 1]);
    const auto pair = [&](int p) { return pair_of_word(words[j], shared, j % 2, p); };
    blocks[0][j] = code_pair<false>(pair(0), scales) | code_pair<false>(pair(2), scales) << 16;
    blocks[1][j] = code_pair<true>(pair(1), scales) | code_pair<true>(pair(3), scales) << 16;
  }
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    std::uint32_t(&v)[4] = blocks[r];
    transpose(v, lane);
    rows[r] = {__byte_perm(v[0], v[1], 0x5410), __byte_perm(v[2], v[3], 0x5410),
               __byte_perm(v[0], v[1], 0x7632), __byte_perm(v[2], v[3], 0x7632)};
  }
}

}  // namespace nvfp4::cuda::fp8
