#pragma once

#include <cstddef>
#include <cstdint>

#include "nvfp4/format.h"

/// WeightLayout::fragments_64x64: the A operands of mma and wgmma in the order of a warp's
/// registers. Host and device.
///
/// A tile has 64 rows and 64 columns. For each of four warps it has the codes of 16 rows: 32 lanes
/// of 4 words. The scales follow: for each warp 16 rows, as 8 lanes of 8 bytes. Word j of lane 4g +
/// q holds block j, four pairs of columns: {2q, 2q+1} of rows g and g + 8, then {2q + 8, 2q + 9} of
/// both (source: PTX ISA, mma.m16n8k16 fragments). The scale bytes of lane g are rows g, g, g + 8,
/// g + 8 of blocks 0, 1, 0, 1. Those of blocks 2, 3, 2, 3 follow.
///
/// A rotation and a mask turn a pair of codes into a BF16 pair: sign and magnitude at bits 15 and
/// 6-8 of each half. Three pairs of a word fit this way. Four masks exceed 32 bits, so the fourth
/// pairs of two words share the remaining bits.
namespace nvfp4::cuda {

inline constexpr int kTileRows = 64, kTileCols = 64;
inline constexpr int kTileCodeBytes = kTileRows * kTileCols / 2;
inline constexpr int kTileScaleBytes = kTileRows * kTileCols / 16;
inline constexpr int kTileBytes = kTileCodeBytes + kTileScaleBytes;

/// The factor by which an epilogue multiplies sums of dequantized fragments, which are e2m1 · scale
/// · 2^-8. That unit keeps the factors of a BF16 or FP16 multiplication normal.
inline constexpr float kFragmentUnit = 256.0f;

inline constexpr std::uint32_t kPairMask = 0x81C081C0;  ///< sign and magnitude of a pair
inline constexpr std::uint32_t kSharedMask =
    0x06030603;                            ///< bits of the fourth pairs in the first word
inline constexpr int kSharedRotation = 2;  ///< left rotation of the second word to meet the first
/// Returns the left rotation of pair 0, 1 or 2 of a word. fourth_rotation() is that of a word's
/// fourth pair in the shared bits.
NVFP4_HD constexpr int pair_rotation(int pair) { return pair == 0 ? 0 : pair == 1 ? 4 : 10; }
NVFP4_HD constexpr int fourth_rotation(int word) { return word == 0 ? 6 : 12; }

NVFP4_HD constexpr std::uint32_t rotate_left(std::uint32_t v, int by) {
  return by == 0 ? v : v << by | v >> (32 - by);
}
/// Returns the codes of an even and the next odd column at the bits of a BF16 pair.
NVFP4_HD constexpr std::uint32_t spread_pair(std::uint32_t byte) {
  return (byte & 8) << 12 | (byte & 7) << 6 | (byte & 0x80) << 24 | (byte & 0x70) << 18;
}
NVFP4_HD constexpr std::uint32_t gather_pair(std::uint32_t pair) {
  return (pair >> 12 & 8) | (pair >> 6 & 7) | (pair >> 24 & 0x80) | (pair >> 18 & 0x70);
}

/// Converts the bytes of pairs to two words of a lane, and back.
NVFP4_HD constexpr void join_words(const std::uint8_t (&bytes)[2][4], std::uint32_t (&words)[2]) {
  std::uint32_t shared = 0;
  for (int w = 0; w < 2; ++w) {
    words[w] = 0;
    for (int p = 0; p < 3; ++p)
      words[w] |= rotate_left(spread_pair(bytes[w][p]), (32 - pair_rotation(p)) % 32);
    shared |= rotate_left(spread_pair(bytes[w][3]), 32 - fourth_rotation(w));
  }
  words[0] |= shared & kSharedMask;
  words[1] |= rotate_left(shared & ~kSharedMask, 32 - kSharedRotation);
}
NVFP4_HD constexpr void split_words(const std::uint32_t (&words)[2], std::uint8_t (&bytes)[2][4]) {
  const std::uint32_t shared =
      (words[0] & kSharedMask) | (rotate_left(words[1], kSharedRotation) & ~kSharedMask);
  for (int w = 0; w < 2; ++w) {
    for (int p = 0; p < 3; ++p)
      bytes[w][p] = static_cast<std::uint8_t>(
          gather_pair(rotate_left(words[w], pair_rotation(p)) & kPairMask));
    bytes[w][3] =
        static_cast<std::uint8_t>(gather_pair(rotate_left(shared, fourth_rotation(w)) & kPairMask));
  }
}

/// Returns the row (of 16) and the byte (of the 32 bytes of 64 codes) of pair p of word j.
NVFP4_HD constexpr int pair_row(int lane, int pair) { return lane / 4 + (pair & 1) * 8; }
NVFP4_HD constexpr int pair_byte(int lane, int word, int pair) {
  return word * 8 + (pair & 2) * 2 + lane % 4;
}

/// Returns the offset of the scale of a row (of 16) and block (of 4) in the 64 scale bytes of a
/// warp.
NVFP4_HD constexpr int scale_byte(int row, int block) {
  return row % 8 * 8 + block / 2 * 4 + row / 8 * 2 + block % 2;
}

/// Returns a scale with three bits of mantissa and five of exponent. Subnormal scales become
/// normal, so that a shift and an addition convert to BF16 or FP16. 0 stays 0; its codes are
/// cleared.
NVFP4_HD constexpr std::uint8_t widen_scale(std::uint8_t bits) {
  if (bits >= 8) return static_cast<std::uint8_t>(bits + (3 << 3));
  if (bits >= 4) return static_cast<std::uint8_t>(3 << 3 | (bits & 3) << 1);
  if (bits >= 2) return static_cast<std::uint8_t>(2 << 3 | (bits & 1) << 2);
  return bits == 1 ? 1 << 3 : 0;
}
NVFP4_HD constexpr std::uint8_t narrow_scale(std::uint8_t wide) {
  if (wide >= 4 << 3) return static_cast<std::uint8_t>(wide - (3 << 3));
  if (wide >= 3 << 3) return static_cast<std::uint8_t>(4 | (wide >> 1 & 3));
  if (wide >= 2 << 3) return static_cast<std::uint8_t>(2 | (wide >> 2 & 1));
  return wide == 0 ? 0 : 1;
}

/// Returns the row of W of packed row `packed` for SwiGLU. Packed rows alternate: 8 rows of gate,
/// then the same 8 of up, so that a lane has both. W has gate and up in groups of `interleave`
/// rows, or in halves if it is 0.
NVFP4_HD constexpr std::int64_t gate_up_row(std::int64_t packed, std::int64_t outputs,
                                            std::int64_t interleave) {
  const std::int64_t output = packed / 16 * 8 + packed % 8, up = packed / 8 % 2;
  return interleave == 0
             ? output + up * outputs
             : output / interleave * 2 * interleave + output % interleave + up * interleave;
}

}  // namespace nvfp4::cuda
