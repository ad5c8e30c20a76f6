#pragma once

#include "backends/cuda/gemm/fragment_layout.h"
#include "backends/cuda/ptx/memory.cuh"
#include "backends/cuda/ptx/registers.cuh"

/// Converts words of fragments_64x64 to A and its scales of mma.m16n8k64.
///
/// Lane 4g + q of the instruction has eight adjacent columns of block q / 2, and of block 2 + q /
/// 2, of rows g and g + 8. They are pairs at the same position in the words of lanes 4g to 4g + 3
/// of the layout.
namespace nvfp4::cuda::sm120 {

/// The constants of a lane.
struct LanePairs {
  bool upper_columns;  ///< columns 8 to 15 of the block: pairs 2 and 3, otherwise 0 and 1
  bool odd_word;       ///< blocks 1 and 3, otherwise 0 and 2
  int row_rotation, next_row_rotation;
  /// Selector of __byte_perm for the eight bytes of lane g of the layout.
  std::uint32_t scale_bytes;

  __device__ __forceinline__ explicit LanePairs(int lane)
      : upper_columns(lane % 2 == 1),
        odd_word(lane % 4 >= 2),
        row_rotation(pair_rotation(upper_columns ? 2 : 0)),
        next_row_rotation(upper_columns ? fourth_rotation(odd_word ? 1 : 0) : pair_rotation(1)),
        scale_bytes(lane % 2 == 0 ? 0x5410 : 0x7632) {}
};

/// Returns eight codes in order from four pairs, which have bits 15 and 6-8 of each half.
__device__ __forceinline__ std::uint32_t codes_of_pairs(const std::uint32_t (&pairs)[4]) {
  std::uint32_t codes = 0;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    // Columns i and i + 4 of the eight.
    const std::uint32_t two =
        __byte_perm(pairs[i / 2], pairs[i / 2 + 2], i % 2 == 0 ? 0x5410 : 0x7632);
    const int right = 6 - 4 * i;
    codes |= (right >= 0 ? two >> right : two << -right) & 0x00070007u << 4 * i;
    codes |= two >> (12 - 4 * i) & 0x00080008u << 4 * i;
  }
  return codes;
}

/// Computes A from the words of lanes 4g to 4g + 3 of the layout.
__device__ __forceinline__ void a_of_words(const uint4 (&words)[4], const LanePairs& lane,
                                           std::uint32_t (&a)[4]) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    std::uint32_t row[4], next_row[4];  // rows g and g + 8
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const std::uint32_t u = half == 0 ? words[i].x : words[i].z;
      const std::uint32_t v = half == 0 ? words[i].y : words[i].w;
      const std::uint32_t word = lane.odd_word ? v : u;
      const std::uint32_t shared = ptx::lop3<0xE4>(u, v << kSharedRotation, kSharedMask);
      row[i] = __funnelshift_l(word, word, lane.row_rotation);
      const std::uint32_t next = lane.upper_columns ? shared : word;
      next_row[i] = __funnelshift_l(next, next, lane.next_row_rotation);
    }
    a[2 * half] = codes_of_pairs(row);
    a[2 * half + 1] = codes_of_pairs(next_row);
  }
}

/// Applies narrow_scale() to four scales.
__device__ __forceinline__ std::uint32_t narrow_scales(std::uint32_t wide) {
  constexpr std::uint32_t kOnes = 0x01010101;
  // Bytes of 32 and more are normal numbers; their exponents decrease by three.
  const std::uint32_t normal = ((wide | ((wide & 0x7F7F7F7Fu) + 0x60606060u)) >> 7 & kOnes) * 0xFFu;
  const std::uint32_t low = wide >> 3 & kOnes, high = (wide >> 4 & kOnes) * 0xFFu;
  // Bytes with exponents 3, 2 and 1 become 4 + 2 bits, 2 + 1 bit, and 1.
  const std::uint32_t of_three = (wide >> 1 & kOnes * 3) | kOnes * 4;
  const std::uint32_t of_two = (wide >> 2 & kOnes) | kOnes * 2;
  const std::uint32_t subnormal =
      ptx::lop3<0xE4>(ptx::lop3<0xE4>(of_three, of_two, low * 0xFFu), low, high);
  return ptx::lop3<0xE4>(wide - (normal & kOnes * 24), subnormal, normal);
}

/// Returns the scales of four blocks: of row g for even lanes, of row g + 8 for odd ones. With
/// thread id 0 the instruction reads those of lanes 4g and 4g + 1.
__device__ __forceinline__ std::uint32_t a_scales_of(uint2 of_layout, const LanePairs& lane) {
  return narrow_scales(__byte_perm(of_layout.x, of_layout.y, lane.scale_bytes));
}

}  // namespace nvfp4::cuda::sm120
