#pragma once

#include <cstdint>
#include <string_view>

#include "nvfp4/host_device.h"

/// The position of each block scale in memory. `blocks` is the number of blocks in a row, K/16.
/// Offsets and sizes are in bytes. Every byte that holds no scale is padding and is zero.
namespace nvfp4 {

/// Returns ⌈a / b⌉.
NVFP4_HD constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }
/// Returns the smallest multiple of `b` that is at least `a`.
NVFP4_HD constexpr std::int64_t round_up(std::int64_t a, std::int64_t b) {
  return ceil_div(a, b) * b;
}

/// The order of the block scales of a matrix.
enum class ScaleLayout : std::uint8_t {
  linear,            ///< row-major [rows, blocks], as in checkpoints
  tiled_128x4,       ///< tiles (512 B) of 128 rows by 4 blocks: cuBLASLt, CUTLASS, tcgen05
  tiled_8x4,         ///< tiles (32 B) of 8 rows by 4 blocks: TensorRT-LLM at small M
  packed_row_major,  ///< int32 [rows, ceil(blocks/4)], block 4w + j in byte j, little-endian
  packed_mn_major,   ///< int32 [ceil(blocks/4), round_up(rows, 4)]: DeepGEMM, TMA-aligned
};

/// The layout ScaleLayout::linear.
struct LinearScales {
  static constexpr ScaleLayout kLayout = ScaleLayout::linear;
  NVFP4_HD static constexpr std::int64_t bytes(std::int64_t rows, std::int64_t blocks) {
    return rows * blocks;
  }
  NVFP4_HD static constexpr std::int64_t offset(std::int64_t row, std::int64_t block,
                                                std::int64_t /*rows*/, std::int64_t blocks) {
    return row * blocks + block;
  }
};

/// The layout ScaleLayout::tiled_128x4. Source: cuBLAS documentation, "1D block scaling factors
/// layout".
struct Tiled128x4Scales {
  static constexpr ScaleLayout kLayout = ScaleLayout::tiled_128x4;
  NVFP4_HD static constexpr std::int64_t bytes(std::int64_t rows, std::int64_t blocks) {
    return round_up(rows, 128) * round_up(blocks, 4);
  }
  NVFP4_HD static constexpr std::int64_t offset(std::int64_t row, std::int64_t block,
                                                std::int64_t /*rows*/, std::int64_t blocks) {
    return (row / 128 * ceil_div(blocks, 4) + block / 4) * 512 + row % 32 * 16 +
           row % 128 / 32 * 4 + block % 4;
  }
};

/// The layout ScaleLayout::tiled_8x4. Source: FlashInfer, SfLayout.layout_8x4.
struct Tiled8x4Scales {
  static constexpr ScaleLayout kLayout = ScaleLayout::tiled_8x4;
  NVFP4_HD static constexpr std::int64_t bytes(std::int64_t rows, std::int64_t blocks) {
    return round_up(rows, 8) * round_up(blocks, 4);
  }
  NVFP4_HD static constexpr std::int64_t offset(std::int64_t row, std::int64_t block,
                                                std::int64_t /*rows*/, std::int64_t blocks) {
    return (row / 8 * ceil_div(blocks, 4) + block / 4) * 32 + row % 8 * 4 + block % 4;
  }
};

/// The layout ScaleLayout::packed_row_major. A little-endian word of four scales is four bytes in
/// order, so this is `linear` with padded rows.
struct PackedRowMajorScales {
  static constexpr ScaleLayout kLayout = ScaleLayout::packed_row_major;
  NVFP4_HD static constexpr std::int64_t bytes(std::int64_t rows, std::int64_t blocks) {
    return rows * round_up(blocks, 4);
  }
  NVFP4_HD static constexpr std::int64_t offset(std::int64_t row, std::int64_t block,
                                                std::int64_t /*rows*/, std::int64_t blocks) {
    return row * round_up(blocks, 4) + block;
  }
};

/// The layout ScaleLayout::packed_mn_major. Source: DeepGEMM,
/// get_mn_major_tma_aligned_packed_ue8m0_tensor, with UE4M3 bytes.
struct PackedMnMajorScales {
  static constexpr ScaleLayout kLayout = ScaleLayout::packed_mn_major;
  NVFP4_HD static constexpr std::int64_t bytes(std::int64_t rows, std::int64_t blocks) {
    return round_up(rows, 4) * round_up(blocks, 4);
  }
  NVFP4_HD static constexpr std::int64_t offset(std::int64_t row, std::int64_t block,
                                                std::int64_t rows, std::int64_t /*blocks*/) {
    return (block / 4 * round_up(rows, 4) + row) * 4 + block % 4;
  }
};

/// Calls `f` with an object of the layout's type and returns its result. A kernel is so written
/// once for all layouts.
template <class F>
constexpr decltype(auto) visit_layout(ScaleLayout layout, F&& f) {
  switch (layout) {
    case ScaleLayout::tiled_128x4:
      return f(Tiled128x4Scales{});
    case ScaleLayout::tiled_8x4:
      return f(Tiled8x4Scales{});
    case ScaleLayout::packed_row_major:
      return f(PackedRowMajorScales{});
    case ScaleLayout::packed_mn_major:
      return f(PackedMnMajorScales{});
    case ScaleLayout::linear:
      break;
  }
  return f(LinearScales{});
}

/// Returns the size of the scales of a matrix in bytes, padding included.
constexpr std::int64_t scale_bytes(ScaleLayout layout, std::int64_t rows, std::int64_t blocks) {
  return visit_layout(layout, [&](auto l) { return decltype(l)::bytes(rows, blocks); });
}

/// Returns the byte offset of the scale of (row, block).
constexpr std::int64_t scale_offset(ScaleLayout layout, std::int64_t row, std::int64_t block,
                                    std::int64_t rows, std::int64_t blocks) {
  return visit_layout(layout,
                      [&](auto l) { return decltype(l)::offset(row, block, rows, blocks); });
}

/// Returns the byte at which the scales of group `g` of a grouped operand start. The groups' scales
/// follow one another. `row_ends` holds the cumulative ends of the groups' rows (the 2-D side,
/// activations). A group may have any number of rows, also 0. With g = groups the result is the
/// total size.
constexpr std::int64_t grouped_scale_base(ScaleLayout layout, const std::int64_t* row_ends,
                                          std::int64_t g, std::int64_t blocks) {
  std::int64_t base = 0;
  for (std::int64_t j = 0; j < g; ++j)
    base += scale_bytes(layout, row_ends[j] - (j == 0 ? 0 : row_ends[j - 1]), blocks);
  return base;
}

/// Returns the same for the 3-D side: weights, with `rows` rows in every group.
constexpr std::int64_t grouped_scale_base(ScaleLayout layout, std::int64_t rows, std::int64_t g,
                                          std::int64_t blocks) {
  return g * scale_bytes(layout, rows, blocks);
}

/// Returns the row order inside each 128 rows that DeepGEMM applies before UTCCP. In a
/// packed_mn_major column in this order, the bytes of 128 rows are one 128x4 tile.
NVFP4_HD constexpr std::int64_t utccp_row(std::int64_t row) {
  return row / 128 * 128 + row % 32 * 4 + row % 128 / 32;
}

/// Returns the name of the layout, such as "tiled_128x4".
constexpr std::string_view layout_name(ScaleLayout layout) {
  switch (layout) {
    case ScaleLayout::tiled_128x4:
      return "tiled_128x4";
    case ScaleLayout::tiled_8x4:
      return "tiled_8x4";
    case ScaleLayout::packed_row_major:
      return "packed_row_major";
    case ScaleLayout::packed_mn_major:
      return "packed_mn_major";
    case ScaleLayout::linear:
      break;
  }
  return "linear";
}

}  // namespace nvfp4
