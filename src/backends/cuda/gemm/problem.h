#pragma once

#include <cstdint>

#include "backends/cuda/device/globals.cuh"
#include "nvfp4/activation.h"
#include "nvfp4/layout.h"
#include "nvfp4/tensor_core_gemm.h"

/// What the kernels are told. Host and device.
namespace nvfp4::cuda {

/// Cache policies as createpolicy.fractional.L2::evict_… makes them (source: CUTLASS,
/// cute/arch/copy_sm90_desc.hpp): what is read once leaves the L2 cache before what was there.
inline constexpr std::uint64_t kEvictNormal = 0x1000000000000000;
inline constexpr std::uint64_t kEvictFirst = 0x12F0000000000000;

struct FragmentGemm {
  // W: [groups][row tiles][chunks] tiles of fragments_64x64
  const std::uint8_t* weights = nullptr;
  std::int64_t group_bytes = 0;
  int row_tiles = 0;  ///< of 64
  int chunks = 0;     ///< of 64 columns
  int n = 0;

  const float* w_global = nullptr;
  bool w_global_per_row = false;
  const float* x_global = nullptr;  ///< null: 1
  bool x_global_per_row = false;
  const float* alpha = nullptr;  ///< null: 1; one for each group
  float factor = 1.0f;
  const float* bias = nullptr;  ///< null, or groups · n

  const void* x = nullptr;  ///< what its tensor map describes, too
  std::int64_t x_stride = 0;
  int k = 0;

  // Rows of x and out: group g has rows [start_g, end_g), or each row of out the group that a
  // routing names.
  int groups = 1;
  const std::int32_t* starts = nullptr;  ///< null: the end of the group before
  const std::int32_t* ends = nullptr;    ///< null: every group has all rows
  bool ends_settled = false;             ///< the kernel before does not write ends and ids
  int first_row = 0, rows = 0;           ///< of the product of one group: those up to `rows`
  int all_rows = 0;                      ///< of out
  bool x_whole_chunks = true;  ///< K % 64 == 0: the copy engine brings several chunks at once
  bool x_of_group = false;     ///< group g reads slice g of x, else all the same
  int out_group_cols = 0;      ///< group g writes its columns from g · this on

  void* out = nullptr;
  DType out_type = DType::bf16;
  std::int64_t out_stride = 0;
  bool wide_stores = false;  ///< rows of out allow 16 bytes at a time

  // SwiGLU of gate and up, whose rows are packed as gate_up_row() says: out is [rows, n / 2].
  float limit = 0;
  int interleave = 0;
  // Its result is quantized if there are codes; `out` is not used then.
  std::uint8_t* codes = nullptr;  ///< [rows, n / 4]
  std::uint8_t* scales = nullptr;
  ScaleLayout scale_layout = ScaleLayout::linear;
  Globals out_globals;

  int splits = 1;              ///< of the depth, one for each block of a cluster
  std::uint32_t sixteen = 16;  ///< see Shift16: a number that the compiler must not know
  int x_box = 0;               ///< rows of x that are copied for a tile, see box_rows()
  bool store_tiles = false;    ///< out has a tensor map: see store_tile()
  int out_box = 0;             ///< see out_box_tokens()
  std::uint64_t weights_policy = kEvictNormal;  ///< of their copies in the L2 cache
  int next = 0;                                 ///< see GemmTile
  int early = 0;                                ///< that of GemmTile, or more than there are

  // Last: before the rest they cost other products up to 6 % (what a kernel reads first is theirs).
  Routing routing = {};   ///< without ids: there is none
  int rows_of_token = 1;  ///< of out for a row of x, with a routing

  // Blocks [0, helpers) take slices of the depth of all others, see help.cuh.
  int helpers = 0;
  int help = 0;                         ///< stages of a slice
  std::uint32_t* help_flags = nullptr;  ///< of 0, one for each slice
  float* help_sums = nullptr;
};

// What the host must know of a tile's kernel.

/// Tiles of routed_gemm_kernel: a row of x that has weights of its own.
inline constexpr int kRoutedRows[] = {32, 64, 128, 224};
NVFP4_HD constexpr bool is_routed(const GemmTile& t) {
  return t.tokens == 1 && t.splits == 1 &&
         (t.rows == 32 || t.rows == 64 || t.rows == 128 || t.rows == 224);
}
inline constexpr int kOwnXTokens = 2;  ///< of tiles whose warps bring x themselves
/// Whether a block leaves room for another one, of this kernel or of the next: half the memory and
/// registers of a multiprocessor. Those of 64 tokens do if they let the next one start; of 128 rows
/// a block then has but one tile.
NVFP4_HD constexpr bool leaves_room(const GemmTile& t) {
  return t.rows <= 128 && (t.tokens <= 32 || (t.tokens == 64 && t.next > 0));
}
/// What a PartialSums has: a flag for each slice of a block's depth that a helper takes, and sums.
inline constexpr int kMostSlices = 512;
inline constexpr int kMostSlicesOfHelper = 16;
inline constexpr std::int64_t kHelpFlagBytes = kMostSlices * 4;
inline constexpr std::int64_t kHelpSumBytes = std::int64_t{5} << 20;
/// Of a slice with such a tile: two warpgroups have sums of their own.
constexpr std::int64_t help_sum_bytes(const GemmTile& t) {
  return std::int64_t{t.rows} * t.tokens * 2 * 4;
}
constexpr int blocks_per_multiprocessor(const GemmTile& t) { return leaves_room(t) ? 2 : 1; }
/// Chunks of 64 columns that are brought at once: one thread cannot start many small copies fast
/// enough.
constexpr int stage_chunks(const GemmTile& t) {
  if (t.tokens == 48 || t.tokens == 64) return leaves_room(t) ? 2 : 4;
  return t.tokens <= 16 || (t.tokens == 32 && t.rows == 64) ? 4 : t.tokens <= 144 ? 2 : 1;
}
/// Tiles of strip_gemm_kernel: few tokens, and strips of 16 rows among which, and parts of the
/// depth, a block has its warps.
NVFP4_HD constexpr bool is_strips(const GemmTile& t) {
  if (t.splits != 1) return false;
  const bool rows = t.rows == 16 || t.rows == 32 || t.rows == 64;
  return t.tokens == kOwnXTokens ? rows || t.rows == 128
                                 : rows && (t.tokens == 8 || (t.tokens == 16 && t.rows > 16));
}
/// Tiles whose blocks may leave a part of their depth to helpers.
constexpr bool has_helpers(const GemmTile& t) {
  if (t.rows != 64 || is_strips(t)) return false;
  return t.tokens == 16 || t.tokens == 32 || (t.tokens == 64 && t.next == 0);
}
/// Parts of the depth that the 16 warps of such a tile have, or the 14 of one of 224 rows.
constexpr int strip_parts(const GemmTile& t) { return 16 * 16 / t.rows; }
inline constexpr int kTileTokens[] = {kOwnXTokens, 8, 16, 32, 48, 64, 96, 128, 144, 160, 192, 256};
constexpr bool is_tile(const GemmTile& t) {
  if (is_strips(t) || is_routed(t)) return true;
  // Those of 192 rows, and of 48, 96, 144, 160 and 192 tokens, are for numbers of rows, of W or x,
  // that fill tiles of a power of two badly.
  const bool few_splits = t.splits == 1 || t.splits == 2;
  if (t.rows == 192)
    return (t.tokens == 48 || t.tokens == 64 || t.tokens == 96 || t.tokens == 128) && few_splits;
  if (t.rows != 64 && t.rows != 128) return false;
  switch (t.tokens) {
    case 96:
    case 144:
    case 160:
    case 192:
      return t.rows == 128 && few_splits;
    case 8:
    case 16:
    case 32:
    case 64:
    case 128:
    case 256:
      if (t.tokens == 256 && t.rows == 64) return t.splits == 1;
      return t.splits == 1 || t.splits == 2 || t.splits == 4 || t.splits == 8;
    default:
      return false;
  }
}
/// Rows of x of a copy. Those past its last row would be filled with zeros, but slowly: what a tile
/// has there instead does not matter, since sums of a token depend on its row alone.
constexpr int box_rows(const GemmTile& t, std::int64_t rows) {
  if (rows >= t.tokens) return t.tokens;
  return static_cast<int>(is_strips(t) ? rows : round_up(rows, 8));  // wgmma takes eight at a time
}
/// Chunks of each part of the depth that a block of strips brings at once. With 16 rows x is most
/// of that: of more than four tokens, smaller steps leave less to wait for.
constexpr int strip_chunks(const GemmTile& t, int x_box) {
  return t.tokens == 8 && t.rows == 16 && x_box > 4 ? 1 : 2;
}
/// Chunks of 64 columns of a copy of x.
constexpr int box_chunks(const GemmTile& t, int x_box) {
  return is_strips(t) ? strip_chunks(t, x_box) * strip_parts(t) : stage_chunks(t);
}
// The two or three warpgroups that multiply have other rows of W, or else other tokens, or other
// parts of the depth.
NVFP4_HD constexpr int row_groups(const GemmTile& t) { return t.rows >= 128 ? t.rows / 64 : 1; }
NVFP4_HD constexpr int token_groups(const GemmTile& t) {
  return t.rows == 64 && t.tokens == 256 ? 2 : 1;
}
NVFP4_HD constexpr int depth_groups(const GemmTile& t) {
  return row_groups(t) * token_groups(t) > 1 ? 1 : 2;
}
/// Whether a block has but one tile: then its sums are put together in the memory of its stages,
/// and if they are of parts of the depth, their order depends on the tile.
NVFP4_HD constexpr bool is_one_tile(const GemmTile& t) {
  if (is_strips(t) || is_routed(t) || t.splits > 1) return true;
  return depth_groups(t) > 1 || (t.tokens == 64 && leaves_room(t));
}
/// How many tokens a tile can multiply: the least of these that is enough, in order, 0 behind the
/// last. Each is a loop of its own, and ptxas gives every one registers of its own: there is room
/// for 336 tokens together, with three warpgroups for some 104, else it serializes the products.
inline constexpr int kMostShapes = 4;
struct TokenShapes {
  int of[kMostShapes];
  NVFP4_HD constexpr int operator[](int i) const { return of[i]; }
};
NVFP4_HD constexpr TokenShapes token_shapes(const GemmTile& t) {
  if (t.rows == 192 && !is_one_tile(t)) {
    if (t.tokens == 48) return {{32, 48}};
    if (t.tokens == 64) return {{40, 64}};
  }
  if (t.rows == 128 && !is_one_tile(t)) {
    if (t.tokens == 64) return {{32, 40, 48, 64}};
    if (t.tokens == 96) return {{64, 80, 96}};
    if (t.tokens == 128) return {{32, 64, 128}};
    if (t.tokens == 144) return {{64, 128, 144}};
  }
  return {{t.tokens}};
}
NVFP4_HD constexpr int shape_count(const GemmTile& t) {
  const TokenShapes shapes = token_shapes(t);
  int count = 0;
  while (count < kMostShapes && shapes[count] > 0) ++count;
  return count;
}
/// Tokens that are multiplied of a tile that has `tokens`.
NVFP4_HD constexpr int shape_of(const GemmTile& t, int tokens) {
  const TokenShapes shapes = token_shapes(t);
  for (int i = 0; i < kMostShapes; ++i)
    if (shapes[i] >= tokens) return shapes[i];
  return t.tokens;
}
/// The rows of a group are shared out to as few tiles as there can be: so many to each, of as few
/// that are multiplied as there can be, and to the last what is left.
NVFP4_HD constexpr int tile_width(const GemmTile& t, int rows, int tiles) {
  return shape_count(t) == 1 ? t.tokens : shape_of(t, 1 + (rows - 1) / tiles);
}
/// Whether whole tiles of out, 64 columns a warpgroup, are stored by the copy engine.
constexpr bool stores_tiles(const GemmTile& t) { return t.tokens >= 48 && !is_one_tile(t); }
/// Whether they are stored in boxes of some tokens, as many as there are.
constexpr bool stores_boxes(const GemmTile& t) { return stores_tiles(t) && shape_count(t) > 1; }
/// Tokens of a box of out: those of a warpgroup, or fewer where tiles do not have all.
constexpr int out_box_tokens(const GemmTile& t, bool grouped) {
  return grouped && stores_boxes(t) ? 16 : t.tokens / token_groups(t);
}
/// Whether a sum is made in the same way by all of these tiles. The smallest tile's mma.sync need
/// not add as wgmma does.
constexpr bool is_batch_invariant(const GemmTile& t) {
  return !is_strips(t) && t.splits == 1 && depth_groups(t) == 1 && t.tokens > 8 && t.help == 0;
}

}  // namespace nvfp4::cuda
