#pragma once

#include "backends/cuda/device/decode.cuh"

/// Dequantizes whole blocks to 16-bit values.
namespace nvfp4::cuda {

/// Returns two values rounded to BF16 or FP16.
__device__ inline std::uint32_t pair_of(DType dtype, float first, float second) {
  std::uint32_t pair;
  if (dtype == DType::bf16)
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(second), "f"(first));
  else
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(second), "f"(first));
  return pair;
}

/// The values of a block's eight magnitudes as 16-bit numbers. Low and high bytes are separate, so
/// that a code selects a byte of each.
struct ValueTable {
  std::uint32_t low[2], high[2];

  /// Dequantizes the magnitudes 0 … 6. Returns false if values need more than a sign: NaN or
  /// infinity.
  __device__ bool make(const Decoder& decode, DType dtype) {
    std::uint32_t pairs[4];
#pragma unroll
    for (int i = 0; i < 4; ++i)
      pairs[i] = pair_of(dtype, decode(0x76543210u, 2 * i), decode(0x76543210u, 2 * i + 1));
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      low[i] = __byte_perm(pairs[2 * i], pairs[2 * i + 1], 0x6420);
      high[i] = __byte_perm(pairs[2 * i], pairs[2 * i + 1], 0x7531);
    }
    return !decode.is_nan && fabsf(decode.global) < INFINITY;
  }
  /// Dequantizes elements 4·half to 4·half + 3 of eight codes.
  __device__ void four(std::uint32_t codes, int half, std::uint32_t* words) const {
    const std::uint32_t magnitudes = (codes & 0x77777777u) >> (16 * half);
    const std::uint32_t lows = __byte_perm(low[0], low[1], magnitudes);
    // The sign of an even code moves to the top of its byte, where an odd code already has it.
    const std::uint32_t signs = __byte_perm(codes << 4, codes, half == 0 ? 0x5140 : 0x7362);
    const std::uint32_t highs = __byte_perm(high[0], high[1], magnitudes) ^ (signs & 0x80808080u);
    words[0] = __byte_perm(lows, highs, 0x5140);
    words[1] = __byte_perm(lows, highs, 0x7362);
  }
  /// Dequantizes the 16 elements of a block, two in a word.
  __device__ void block(uint2 codes, std::uint32_t (&words)[8]) const {
    four(codes.x, 0, words);
    four(codes.x, 1, words + 2);
    four(codes.y, 0, words + 4);
    four(codes.y, 1, words + 6);
  }
};

}  // namespace nvfp4::cuda
