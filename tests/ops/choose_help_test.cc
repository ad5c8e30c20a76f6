// How much of a product's depth other blocks take. No GPU is needed.
#include <gtest/gtest.h>

#include <random>

#include "backends/cuda/gemm/choose_tile.h"
#include "nvfp4/layout.h"

namespace nvfp4::cuda {
namespace {

constexpr int kMultiprocessors = 132;

TileProblem deep(std::int64_t rows) {
  return {.n = 7168, .k = 18432, .rows = rows, .multiprocessors = kMultiprocessors, .helped = true};
}
GemmTile helped(int tokens, int splits, int help) {
  return {.tokens = tokens, .rows = 64, .splits = splits, .help = help};
}

TEST(ChooseHelp, TakesWhatWasMeasuredWhereThereIsMemoryForSums) {
  for (const auto& [rows, help] : {std::pair{16, 5}, {32, 5}, {64, 8}}) {
    EXPECT_EQ(choose_tile(deep(rows)).help, help) << rows;
    TileProblem without = deep(rows);
    without.helped = false;
    EXPECT_EQ(choose_tile(without).help, 0) << rows;
    TileProblem invariant = deep(rows);
    invariant.batch_invariant = true;
    EXPECT_EQ(choose_tile(invariant).help, 0);
    TileProblem swiglu = deep(rows), plain = without;
    swiglu.swiglu = plain.swiglu = true;
    EXPECT_EQ(choose_tile(swiglu), choose_tile(plain));
  }
}

TEST(ChooseHelp, IsEstimatedForDeepProductsWithFewTiles) {
  TileProblem p = deep(64);
  p.k = 16384;
  GemmTile tile = choose_tile(p);
  EXPECT_GE(tile.help, 4);
  EXPECT_LE(tile.help, 16);
  const double time = estimated_time(p, tile);
  tile.help = 0;
  EXPECT_LT(time, estimated_time(p, tile));
  p.k = 2048;  // eight steps
  EXPECT_EQ(choose_tile(p).help, 0);
  p.k = 16400;  // the last step is not whole
  EXPECT_EQ(choose_tile(p).help, 0);
  p = deep(64);
  p.n = 8448;  // 132 tiles of 64
  EXPECT_EQ(choose_tile(p).help, 0);
}

TEST(ChooseHelp, NeedsWhatItsKernelNeeds) {
  const TileProblem p = deep(60);
  EXPECT_TRUE(can_help(p, helped(64, 1, 8)));
  EXPECT_TRUE(can_help(p, helped(64, 1, 71)));
  EXPECT_FALSE(can_help(p, helped(64, 1, 72)));  // a block keeps none of 72
  EXPECT_FALSE(can_help(p, helped(64, 2, 8)));   // 224 blocks
  EXPECT_FALSE(can_help(p, {.tokens = 64, .rows = 64, .splits = 1, .next = 1, .help = 8}));
  EXPECT_FALSE(can_help(p, {.tokens = 64, .rows = 128, .splits = 1, .help = 8}));
  EXPECT_FALSE(can_help(p, helped(16, 1, 8)));  // a tile of strips
  EXPECT_FALSE(can_help(p, {.tokens = 8, .rows = 64, .splits = 2, .help = 8}));
  EXPECT_FALSE(can_help(p, {.tokens = 128, .rows = 64, .splits = 1, .help = 8}));
  TileProblem other = p;
  other.helped = false;
  EXPECT_FALSE(can_help(other, helped(64, 1, 8)));
  other = p;
  other.groups = 2;
  other.n = 3584;
  EXPECT_FALSE(can_help(other, helped(64, 1, 8)));
  other = p;
  other.grouped = true;
  EXPECT_FALSE(can_help(other, helped(64, 1, 8)));
  other = p;
  other.batch_invariant = true;
  EXPECT_FALSE(can_help(other, helped(64, 1, 8)));
  other = p;
  other.swiglu = true;
  EXPECT_FALSE(can_help(other, helped(64, 1, 8)));
  other = p;
  other.rows = 0;
  EXPECT_FALSE(can_help(other, helped(64, 1, 8)));
  EXPECT_EQ(choose_tile(other).help, 0);
  other = p;
  other.n = 131 * 64;  // one helper for 131 blocks
  EXPECT_FALSE(can_help(other, helped(64, 1, 1)));
  EXPECT_FALSE(is_possible(other, helped(64, 1, 1)));
}

TEST(ChooseHelp, HelpersFillTheMultiprocessorsAndHaveRoomForTheirSums) {
  std::mt19937_64 rng(7);
  int count = 0;
  for (int i = 0; i < 20'000; ++i) {
    const TileProblem p{.n = static_cast<std::int64_t>(1 + rng() % 20'000),
                        .k = static_cast<std::int64_t>(16 * (1 + rng() % 1500)),
                        .rows = static_cast<std::int64_t>(1 + rng() % 200),
                        .multiprocessors = static_cast<int>(1 + rng() % 200),
                        .helped = rng() % 4 != 0};
    const int tokens = 16 << rng() % 3, splits = 1 << rng() % 4;
    for (const GemmTile& t :
         {helped(tokens, splits, static_cast<int>(1 + rng() % 20)), choose_tile(p)}) {
      if (t.help == 0) {
        EXPECT_EQ(helper_count(p, t), 0);
        continue;
      }
      if (!can_help(p, t)) continue;
      ++count;
      EXPECT_TRUE(p.helped && is_possible(p, t));
      const std::int64_t blocks = block_count(p, t), helpers = helper_count(p, t);
      EXPECT_GE(helpers, 1);
      EXPECT_LE(helpers, blocks);
      // Then blocks of one rank are helped by blocks of that rank, and clusters are whole.
      EXPECT_EQ(helpers % t.splits, 0);
      EXPECT_LE(blocks + helpers, p.multiprocessors * blocks_per_multiprocessor(t));
      EXPECT_LE(ceil_div(blocks, helpers), kMostSlicesOfHelper);
      EXPECT_LE(blocks, kMostSlices);
      EXPECT_LE(blocks * help_sum_bytes(t), kHelpSumBytes);
      EXPECT_LT(t.help, steps_of(p, t));
    }
  }
  EXPECT_GT(count, 250);
}

}  // namespace
}  // namespace nvfp4::cuda
