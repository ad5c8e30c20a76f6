#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#include "backends/cuda/gemm/fragment_layout.h"
#include "backends/cuda/ptx/registers.cuh"
#include "nvfp4/matrix.h"

/// Dequantizes words of fragments_64x64 to A operands. The results are e2m1 · scale · 2^-8,
/// exactly.
namespace nvfp4::cuda {

/// A factor of 16 that is unknown at compile time, so that the compiler emits no shift. Logic and
/// shifts run at half rate, and their unit limits dequantization.
struct Shift16 {
  std::uint32_t factor;
};

/// Returns the widened scales of rows g and g + 8 of a block: scale · 2^118 in BF16, scale · 2^6 in
/// FP16.
template <DType kType>
__device__ __forceinline__ std::uint32_t scale_pair(std::uint32_t scales, int block,
                                                    Shift16 shift) {
  const std::uint32_t bytes =
      block % 2 == 0 ? scales & 0x00FF00FFu : __byte_perm(scales, 0, 0x4341);
  return kType == DType::bf16 ? bytes * shift.factor + 0x75807580u
                              : bytes * (shift.factor * 8) + 0x2C002C00u;
}

/// Returns a pair of codes times the scale of their row, the lower or upper half of `scales`. A
/// pair holds e2m1 · 2^-126 (BF16) or e2m1 · 2^-14 (FP16); 0.5 is a subnormal number.
template <DType kType, bool kUpper>
__device__ __forceinline__ std::uint32_t scaled(std::uint32_t codes, std::uint32_t scales) {
  std::uint32_t product;
  if constexpr (kType == DType::bf16) {
    const auto s = reinterpret_cast<const __nv_bfloat162&>(scales);
    const __nv_bfloat162 v = __hmul2(reinterpret_cast<const __nv_bfloat162&>(codes),
                                     kUpper ? __high2bfloat162(s) : __low2bfloat162(s));
    product = reinterpret_cast<const std::uint32_t&>(v);
  } else {
    codes = (codes & 0x80008000u) | (codes << 3 & 0x0E000E00u);
    const auto s = reinterpret_cast<const __half2&>(scales);
    const __half2 v =
        __hmul2(reinterpret_cast<const __half2&>(codes), kUpper ? __high2half2(s) : __low2half2(s));
    product = reinterpret_cast<const std::uint32_t&>(v);
  }
  return product;
}

/// The part of a chunk that a lane reads: its share of 16 rows x 64 columns of its warp.
struct LaneChunk {
  uint4 codes;
  uint2 scales;
};

/// Returns the fourth pairs of two words: mask ? u : rotated v. A shift replaces each rotation that
/// loses no bit of the mask.
__device__ __forceinline__ std::uint32_t shared_pairs(std::uint32_t u, std::uint32_t v) {
  return ptx::lop3<0xE4>(u, v << kSharedRotation, kSharedMask);
}
/// Returns pair `pair` of word `of` (0 or 1). `shared` is shared_pairs() of both words.
__device__ __forceinline__ std::uint32_t pair_of_word(std::uint32_t word, std::uint32_t shared,
                                                      int of, int pair) {
  if (pair == 3)
    return (of == 0 ? shared << fourth_rotation(0) : rotate_left(shared, fourth_rotation(1))) &
           kPairMask;
  return (pair == 1 ? word << pair_rotation(1) : rotate_left(word, pair_rotation(pair))) &
         kPairMask;
}

/// Dequantizes two words: 16 rows x 32 columns of a warp.
template <DType kType>
__device__ __forceinline__ void decode_words(std::uint32_t u, std::uint32_t v, std::uint32_t scales,
                                             Shift16 shift, std::uint32_t (&a)[4],
                                             std::uint32_t (&b)[4]) {
  const std::uint32_t shared = shared_pairs(u, v);
  const std::uint32_t su = scale_pair<kType>(scales, 0, shift);
  const std::uint32_t sv = scale_pair<kType>(scales, 1, shift);
  a[0] = scaled<kType, false>(pair_of_word(u, shared, 0, 0), su);
  a[1] = scaled<kType, true>(pair_of_word(u, shared, 0, 1), su);
  a[2] = scaled<kType, false>(pair_of_word(u, shared, 0, 2), su);
  a[3] = scaled<kType, true>(pair_of_word(u, shared, 0, 3), su);
  b[0] = scaled<kType, false>(pair_of_word(v, shared, 1, 0), sv);
  b[1] = scaled<kType, true>(pair_of_word(v, shared, 1, 1), sv);
  b[2] = scaled<kType, false>(pair_of_word(v, shared, 1, 2), sv);
  b[3] = scaled<kType, true>(pair_of_word(v, shared, 1, 3), sv);
}

using Fragments = std::uint32_t[4][4];  ///< A operands of four steps of 16 columns

template <DType kType>
__device__ __forceinline__ void decode_chunk(const LaneChunk& c, Shift16 shift, Fragments& f) {
  decode_words<kType>(c.codes.x, c.codes.y, c.scales.x, shift, f[0], f[1]);
  decode_words<kType>(c.codes.z, c.codes.w, c.scales.y, shift, f[2], f[3]);
}

}  // namespace nvfp4::cuda
