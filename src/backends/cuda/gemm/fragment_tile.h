#pragma once

#include "backends/cuda/gemm/fragment_layout.h"

/// Converts between tiles of fragments_64x64 and their codes and scales. Host and device.
namespace nvfp4::cuda {

/// The values of a tile: two codes in a byte as in a checkpoint, and E4M3 scales.
struct TileValues {
  std::uint8_t codes[kTileRows][kTileCols / 2];
  std::uint8_t scales[kTileRows][kTileCols / 16];
};

inline constexpr int kTileWarps = 4, kTileLanes = 32;

/// Returns the scale, or 0 for a block of zeros if the scale is NaN or negative.
NVFP4_HD constexpr std::uint8_t usable_scale(std::uint8_t scale) {
  return scale <= E4M3::kMaxBits ? scale : std::uint8_t{0};
}
/// Returns two codes, with their signs only if the scale is 0. A kernel multiplies by a widened
/// scale, which cannot be 0.
NVFP4_HD constexpr std::uint8_t usable_codes(std::uint8_t codes, std::uint8_t scale) {
  return usable_scale(scale) == 0 ? static_cast<std::uint8_t>(codes & 0x88) : codes;
}

/// Converts the part of a tile that one lane of one warp holds to words.
NVFP4_HD constexpr void pack_lane(const TileValues& values, int warp, int lane,
                                  std::uint32_t (&words)[4]) {
  for (int j = 0; j < 4; j += 2) {
    std::uint8_t bytes[2][4] = {};
    for (int w = 0; w < 2; ++w)
      for (int p = 0; p < 4; ++p) {
        const int row = warp * 16 + pair_row(lane, p);
        bytes[w][p] =
            usable_codes(values.codes[row][pair_byte(lane, j + w, p)], values.scales[row][j + w]);
      }
    std::uint32_t two[2] = {};
    join_words(bytes, two);
    words[j] = two[0];
    words[j + 1] = two[1];
  }
}
NVFP4_HD constexpr void unpack_lane(const std::uint32_t (&words)[4], int warp, int lane,
                                    TileValues& values) {
  for (int j = 0; j < 4; j += 2) {
    const std::uint32_t two[2] = {words[j], words[j + 1]};
    std::uint8_t bytes[2][4] = {};
    split_words(two, bytes);
    for (int w = 0; w < 2; ++w)
      for (int p = 0; p < 4; ++p)
        values.codes[warp * 16 + pair_row(lane, p)][pair_byte(lane, j + w, p)] = bytes[w][p];
  }
}

/// Returns the byte offset in a tile of a lane's words, or of the scale of a row and block.
NVFP4_HD constexpr int words_at(int warp, int lane) { return (warp * kTileLanes + lane) * 16; }
NVFP4_HD constexpr int scale_at(int row, int block) {
  return kTileCodeBytes + row / 16 * 64 + scale_byte(row % 16, block);
}

}  // namespace nvfp4::cuda
