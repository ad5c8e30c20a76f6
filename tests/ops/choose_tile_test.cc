// How a product is cut up for a GPU. None is needed.
#include "backends/cuda/gemm/choose_tile.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <tuple>
#include <vector>

#include "nvfp4/layout.h"

namespace nvfp4::cuda {
namespace {

constexpr int kMultiprocessors = 132;
constexpr int kRows[] = {16, 32, 64, 128, 192, 256}, kSplits[] = {1, 2, 4, 8};

std::vector<GemmTile> all_tiles() {
  std::vector<GemmTile> tiles;
  for (const int tokens : kTileTokens)
    for (const int rows : kRows)
      for (const int splits : kSplits)
        if (const GemmTile t{tokens, rows, splits}; is_tile(t)) tiles.push_back(t);
  return tiles;
}

std::int64_t draw(std::mt19937_64& rng, std::int64_t most) {
  const double exponent = std::uniform_real_distribution<>(0, std::log2(double(most)))(rng);
  return std::min(most, static_cast<std::int64_t>(std::exp2(exponent)));
}

TileProblem draw_problem(std::mt19937_64& rng) {
  return {.n = draw(rng, 200'000),
          .k = 16 * draw(rng, 4096),
          .rows = draw(rng, 100'000),
          .groups = rng() % 2 ? 1 : draw(rng, 1024),
          .grouped = rng() % 2 == 0,
          .multiprocessors = rng() % 4 ? kMultiprocessors : static_cast<int>(1 + rng() % 200),
          .batch_invariant = rng() % 4 == 0,
          .swiglu = rng() % 4 == 0};
}

TEST(ChooseTile, GivesATileThatExistsForEveryProblem) {
  std::mt19937_64 rng(1);
  for (int i = 0; i < 3000; ++i) {
    const TileProblem p = draw_problem(rng);
    for (const GemmTile& t : {choose_tile(p), estimate_tile(p)}) {
      EXPECT_TRUE(is_tile(t) && is_possible(p, t)) << t.tokens << " " << t.rows << " " << t.splits;
      EXPECT_TRUE(!p.batch_invariant || is_batch_invariant(t));
      // No larger a tile than twice what there is.
      EXPECT_TRUE(t.tokens < 2 * p.rows || t.tokens <= 16) << t.tokens << " of " << p.rows;
    }
  }
}

TEST(ChooseTile, DoesNotSplitTheSumsOfABatchInvariantProductAtAnyNumberOfRows) {
  for (const std::int64_t k : {16, 1536, 18432})
    for (std::int64_t rows = 1; rows < 20'000; rows = rows * 5 / 4 + 1)
      EXPECT_TRUE(is_batch_invariant(choose_tile({.n = 2112,
                                                  .k = k,
                                                  .rows = rows,
                                                  .multiprocessors = kMultiprocessors,
                                                  .batch_invariant = true})));
}

TEST(ChooseTile, CopiesHaveTheRowsThatThereAreAndHardlyMore) {
  for (const GemmTile& t : all_tiles())
    for (std::int64_t rows = 1; rows < 600; ++rows) {
      const int box = box_rows(t, rows);
      EXPECT_LE(box, t.tokens);
      EXPECT_GE(box, std::min<std::int64_t>(rows, t.tokens));
      if (is_strips(t)) {
        EXPECT_LE(box, rows);
      } else {
        EXPECT_EQ(box % 8, 0);  // whole atoms of the swizzle
        EXPECT_LT(box, rows + 8);
      }
    }
}

TEST(ChooseTile, TakesWhatWasMeasured) {
  const auto tiles = measured_tiles();
  ASSERT_FALSE(tiles.empty());
  const auto key = [](const MeasuredTile& m) { return std::tuple(m.n, m.k, m.rows); };
  for (std::size_t i = 0; i < tiles.size(); ++i) {
    const MeasuredTile& m = tiles[i];
    EXPECT_TRUE(is_tile(m.tile)) << m.n << "x" << m.k << " " << m.rows;
    const bool first = i == 0 || tiles[i - 1].n != m.n || tiles[i - 1].k != m.k;
    if (i > 0) {
      EXPECT_LT(key(tiles[i - 1]), key(m));
    }
    TileProblem p{.n = m.n, .k = m.k, .rows = m.rows, .multiprocessors = kMultiprocessors};
    const auto helped = [&] {
      TileProblem q = p;
      q.helped = true;
      return choose_tile(q);
    };
    const bool has_helped = m.helped.tokens > 0;
    EXPECT_TRUE(!has_helped || m.helped.help > 0);
    EXPECT_EQ(m.tile.help, 0);
    EXPECT_EQ(choose_tile(p), m.tile);
    EXPECT_EQ(helped(), has_helped ? m.helped : m.tile);
    p.rows = first ? 1 : tiles[i - 1].rows + 1;
    if (p.rows <= 128) {
      EXPECT_EQ(helped(), has_helped ? m.helped : m.tile);
      EXPECT_EQ(choose_tile(p), m.tile) << "the first number of rows that the entry is for";
    } else if (choose_tile(p) != m.tile) {
      EXPECT_LT(estimated_time(p, choose_tile(p)), 0.9 * estimated_time(p, m.tile));
    }
    p.rows = m.rows;
    p.multiprocessors = 78;
    EXPECT_EQ(choose_tile(p), estimate_tile(p)) << "measured on another GPU";
    p.multiprocessors = kMultiprocessors;
    p.batch_invariant = true;
    EXPECT_TRUE(is_batch_invariant(choose_tile(p)));
  }
  const MeasuredTile& last = tiles.back();
  EXPECT_EQ(
      choose_tile(
          {.n = last.n, .k = last.k, .rows = last.rows * 10, .multiprocessors = kMultiprocessors}),
      last.tile);
}

TEST(ChooseTile, TheNextKernelMayStartWithinTheStepsOfABlock) {
  const auto expect_within = [](const TileProblem& p, const GemmTile& t) {
    EXPECT_GE(t.next, 0);
    EXPECT_GE(t.early, 0);
    EXPECT_LT(t.next, std::max<std::int64_t>(1, steps_of(p, t))) << p.n << "x" << p.k;
  };
  std::mt19937_64 rng(8);
  int later = 0;
  for (int i = 0; i < 3000; ++i) {
    const TileProblem p = draw_problem(rng);
    for (const TilePart& part : choose_parts(p))
      if (part.rows > 0) expect_within(p, part.tile);
    const GemmTile t = estimate_tile(p);
    later += t.next > 0;
    if (p.grouped || block_count(p, t) > p.multiprocessors) {
      EXPECT_EQ(t.next, 0) << "there is no room, or it is not known";
    }
  }
  EXPECT_GT(later, 0);
  for (const MeasuredTile& m : measured_tiles())
    expect_within({.n = m.n, .k = m.k, .rows = m.rows, .multiprocessors = kMultiprocessors},
                  m.tile);
  // 16 warps: four strips of 16 rows and four parts of the depth, two chunks of 64 each a step.
  EXPECT_EQ(steps_of({.n = 8192, .k = 8192, .rows = 8}, {8, 64, 1}), 16);
  EXPECT_EQ(steps_of({.n = 8192, .k = 8208, .rows = 8}, {8, 64, 1}), 17);
  EXPECT_EQ(steps_of({.n = 2112, .k = 7168, .rows = 4}, {8, 16, 1}), 4);
  EXPECT_EQ(steps_of({.n = 2112, .k = 7168, .rows = 5}, {8, 16, 1}), 7) << "half as long";
  // Stages of four chunks, shared out among two blocks.
  EXPECT_EQ(steps_of({.n = 8192, .k = 8192, .rows = 16}, {16, 64, 2}), 16);
}

TEST(ChooseTile, EstimatesDoNotFallAsTheProblemGrows) {
  std::mt19937_64 rng(2);
  const auto least = [](const TileProblem& p) { return estimated_time(p, estimate_tile(p)); };
  for (int i = 0; i < 1000; ++i) {
    TileProblem p = draw_problem(rng);
    p.grouped = false;        // those are estimated in two ways
    p.k = round_up(p.k, 64);  // a tile is for no others
    for (const auto grow : {&TileProblem::n, &TileProblem::k, &TileProblem::rows}) {
      TileProblem larger = p;
      larger.*grow += 64 * draw(rng, 250);
      EXPECT_GE(least(larger), least(p));
    }
    for (const GemmTile& t : all_tiles())
      if (is_possible(p, t) && (!p.batch_invariant || is_batch_invariant(t)) &&
          t.tokens < 2 * p.rows) {
        EXPECT_LE(least(p), estimated_time(p, t));
      }
  }
}

TEST(ChooseTile, EstimatesAgreeWithWhatWasMeasured) {
  double worst = 0;
  for (const MeasuredTile& m : measured_tiles()) {
    const TileProblem p{.n = m.n, .k = m.k, .rows = m.rows, .multiprocessors = kMultiprocessors};
    worst = std::max(worst, estimated_time(p, m.tile) / estimated_time(p, estimate_tile(p)));
  }
  EXPECT_LT(worst, 1.5);
}

TEST(ChooseTile, PartsAreAllRowsAndGainByBeingTwo) {
  std::mt19937_64 rng(4);
  int twice = 0;
  for (int i = 0; i < 3000; ++i) {
    const TileProblem p = draw_problem(rng);
    const auto parts = choose_parts(p);
    EXPECT_EQ(parts[0].rows + parts[1].rows, p.rows);
    EXPECT_GT(parts[0].rows, 0);
    EXPECT_TRUE(is_tile(parts[0].tile));
    if (parts[1].rows == 0) continue;
    ++twice;
    EXPECT_TRUE(p.groups == 1 && !p.grouped);
    EXPECT_EQ(parts[0].rows % parts[0].tile.tokens, 0);
    EXPECT_TRUE(is_tile(parts[1].tile));
    double time = 0;
    for (const TilePart& part : parts) {
      EXPECT_TRUE(!p.batch_invariant || is_batch_invariant(part.tile));
      TileProblem of_part = p;
      of_part.rows = part.rows;
      time += estimated_time(of_part, part.tile);
    }
    EXPECT_LT(time, estimated_time(p, choose_tile(p)));
  }
  EXPECT_GT(twice, 10);
  // 17 x 16 tiles for 132 multiprocessors.
  const auto parts =
      choose_parts({.n = 2112, .k = 7168, .rows = 4096, .multiprocessors = kMultiprocessors});
  EXPECT_EQ(parts[1].rows, 256);
  // Two would have fewer rounds of tiles, but each has a start and an end: 88 us, one takes 85.
  const auto one =
      choose_parts({.n = 7168, .k = 2048, .rows = 2048, .multiprocessors = kMultiprocessors});
  EXPECT_EQ(one[1].rows, 0);
}

TEST(ChooseTile, SwigluIsCutUpAsTheSameProductWithoutIt) {
  std::mt19937_64 rng(7);
  const auto expect_same = [](TileProblem p) {
    p.swiglu = false;
    const auto plain = choose_parts(p);
    p.swiglu = true;
    const auto swiglu = choose_parts(p);
    for (int i = 0; i < 2; ++i) {
      GemmTile t = plain[i].tile;
      if (t.rows == 16) {
        t.rows = 32;
        // Twice as many steps of two chunks, or as many of one as there were.
        if (t.tokens != 8 || plain[i].rows <= 4) t.next *= 2;
      }
      EXPECT_EQ(swiglu[i].rows, plain[i].rows) << p.n << "x" << p.k << " " << p.rows;
      EXPECT_EQ(swiglu[i].tile, t) << p.n << "x" << p.k << " " << p.rows;
      EXPECT_TRUE(swiglu[i].rows == 0 || is_possible(p, swiglu[i].tile));
    }
  };
  for (int i = 0; i < 3000; ++i) expect_same(draw_problem(rng));
  // The last rows are few: estimates of tiles of 16 and 32 rows differ there.
  for (const auto& [n, k, rows] :
       {std::tuple{1536, 1024, 1413}, {2016, 1024, 1028}, {1632, 5440, 3841}})
    expect_same({.n = n, .k = k, .rows = rows, .multiprocessors = kMultiprocessors});
}

TileProblem of_experts(int mean) {
  constexpr int kGroups = 256;
  return {.n = 4096,
          .k = 7168,
          .rows = mean * kGroups,
          .groups = kGroups,
          .grouped = true,
          .multiprocessors = kMultiprocessors};
}

TEST(ChooseTile, RowsOfARoutingHaveTilesOfTheirOwn) {
  std::mt19937_64 rng(5);
  for (int i = 0; i < 2000; ++i) {
    TileProblem p = draw_problem(rng);
    p.grouped = p.batch_invariant = false;
    p.rows = 1;
    p.routed = true;
    p.k = std::min(p.k, kMostRoutedDepth);
    const auto parts = choose_parts(p);
    const GemmTile t = parts[0].tile;
    EXPECT_EQ(parts[0].rows, 1);
    EXPECT_EQ(parts[1].rows, 0);
    EXPECT_TRUE(is_routed(t) && is_tile(t) && is_possible(p, t));
    EXPECT_FALSE(is_possible(p, {2, 32, 1}) || is_batch_invariant(t));
    EXPECT_EQ(block_count(p, t), ceil_div(p.n, t.rows) * p.groups);
    EXPECT_TRUE(reads_weights_once(p, t));
    p.routed = false;
    EXPECT_FALSE(is_possible(p, t));
    p.routed = true;
    p.k = kMostRoutedDepth + kBlock;
    EXPECT_FALSE(is_possible(p, t));
  }
}

/// Of eight choices of experts of DeepSeek-V3's size, on an H200.
TEST(ChooseTile, RowsOfARoutingHaveTheTilesThatWereMeasuredToBeTheFastest) {
  TileProblem p{.n = 4096,
                .k = 7168,
                .rows = 1,
                .groups = 8,
                .routed = true,
                .multiprocessors = kMultiprocessors};
  EXPECT_EQ(choose_tile(p), (GemmTile{1, 128, 1}));
  p.n = 7168;
  p.k = 2048;
  EXPECT_EQ(choose_tile(p), (GemmTile{1, 224, 1}));
}

/// The estimate of a full GPU is in proportion to the tiles, whose mean is what it must know.
TEST(ChooseTile, ExpectsAsManyTilesOfGroupsAsChanceMakes) {
  std::mt19937_64 rng(5);
  constexpr int kGroups = 256, kTimes = 40;
  for (const int tokens : {8, 32, 160}) {
    double first = 0;
    for (const int mean : {4, 20, 63, 65, 140, 300}) {
      double tiles = 0;
      for (int time = 0; time < kTimes; ++time) {
        std::vector<std::int64_t> rows(kGroups);
        for (int i = 0; i < mean * kGroups; ++i) ++rows[rng() % kGroups];
        for (const std::int64_t r : rows) tiles += static_cast<double>(ceil_div(r, tokens));
      }
      const double each = estimated_time(of_experts(mean), {tokens, 128, 1}) * kTimes / tiles;
      if (first == 0) first = each;
      EXPECT_NEAR(each / first, 1, 0.02) << mean << " rows in tiles of " << tokens;
    }
  }
}

/// What is multiplied decides, and what is copied a little.
TEST(ChooseTile, ExpectsLittleOfShortTiles) {
  const auto time = [](int mean, const GemmTile& t) { return estimated_time(of_experts(mean), t); };
  for (const auto& [tokens, ratio] : {std::pair{64, 1.1}, {128, 1.3}})
    EXPECT_NEAR(time(8, {tokens, 128, 1}) / time(8, {32, 128, 1}), ratio, 0.02) << tokens;
  // 90 rows are nearly always a whole tile of 128, and 168 one and some 40 rows more.
  const double whole = time(90, {128, 128, 1});
  EXPECT_NEAR((time(168, {128, 128, 1}) - whole) / time(40, {64, 128, 1}), 1.2, 0.1);
  EXPECT_GT(time(90, {160, 128, 1}), whole);
  // About half of the groups have more than two tiles of 128.
  EXPECT_GT(time(256, {128, 128, 1}), 1.05 * time(256, {144, 128, 1}));
}

TEST(ChooseTile, TakesTheSmallerOfNearlyEqualTiles) {
  EXPECT_EQ(choose_tile(of_experts(50)), (GemmTile{64, 128, 1}));
}

TEST(ChooseTile, TakesForManyGroupsWhatWasTheFastest) {
  // 256 experts, 8 for each token, on an H200; docs/benchmarks.md.
  const std::pair<std::int64_t, GemmTile> fastest[] = {
      {1, {8, 128, 1}},     {16, {8, 128, 1}},    {128, {8, 128, 1}},    {512, {32, 128, 1}},
      {1024, {48, 192, 1}}, {2048, {96, 128, 1}}, {4096, {144, 128, 1}}, {8192, {144, 128, 1}}};
  for (const auto& [n, k] : {std::pair{4096, 7168}, std::pair{7168, 2048}})
    for (const auto& [tokens, tile] : fastest)
      EXPECT_EQ(choose_tile({.n = n,
                             .k = k,
                             .rows = tokens * 8,
                             .groups = 256,
                             .grouped = true,
                             .multiprocessors = kMultiprocessors}),
                tile)
          << n << "x" << k << ", " << tokens << " tokens";
}

/// Each shape is a loop of wgmma, which has a multiple of eight columns and registers of its own.
TEST(ChooseTile, ShapesOfATileAreInOrderAndFit) {
  int several = 0;
  for (const GemmTile& t : all_tiles()) {
    const int count = shape_count(t);
    several += count > 1 ? 1 : 0;
    ASSERT_GE(count, 1);
    EXPECT_EQ(token_shapes(t)[count - 1], t.tokens);
    int sum = 0;
    for (int i = 0; i < count; ++i) {
      const int shape = token_shapes(t)[i];
      EXPECT_TRUE(i == 0 || shape > token_shapes(t)[i - 1]) << t.tokens << " " << t.rows;
      EXPECT_TRUE(count == 1 || shape % 8 == 0) << t.tokens << " " << t.rows;
      EXPECT_EQ(shape_of(t, shape), shape);
      EXPECT_EQ(shape_of(t, i == 0 ? 1 : token_shapes(t)[i - 1] + 1), shape);
      sum += shape;
    }
    if (count > 1) {
      EXPECT_LE(sum, t.rows == 192 ? 104 : 336) << t.tokens << " " << t.rows;
      EXPECT_FALSE(is_one_tile(t)) << t.tokens << " " << t.rows << " " << t.splits;
    }
  }
  EXPECT_EQ(several, 6);
}

/// Every row is in one tile, none of which is empty or has more than it can multiply.
TEST(ChooseTile, TilesOfAGroupHaveAllItsRows) {
  for (const GemmTile& t : all_tiles())
    for (int rows = 1; rows < 1200; ++rows) {
      const auto tiles = static_cast<int>(ceil_div(rows, t.tokens));
      const int width = tile_width(t, rows, tiles);
      ASSERT_LE(width, t.tokens);
      ASSERT_EQ(shape_of(t, width), width) << t.tokens << " " << rows;
      ASSERT_TRUE((tiles - 1) * width < rows && rows <= tiles * width)
          << t.tokens << " " << t.rows << ": " << rows << " rows";
    }
  // 270 rows: two tiles of 144 and 126, not three of 128 or two whole ones.
  EXPECT_EQ(tile_width({144, 128, 1}, 270, 2), 144);
  EXPECT_EQ(tile_width({144, 128, 1}, 250, 2), 128);
  EXPECT_EQ(tile_width({160, 128, 1}, 170, 2), 160);
}

TEST(ChooseTile, WeightsAreReadOnceIfThereIsOneTileOfTokens) {
  const GemmTile tile{64, 128, 1};
  EXPECT_TRUE(reads_weights_once({.rows = 64}, tile));
  EXPECT_FALSE(reads_weights_once({.rows = 65}, tile));
  EXPECT_TRUE(reads_weights_once({.rows = 64, .groups = 9}, tile)) << "each has all rows";
  EXPECT_FALSE(reads_weights_once({.rows = 65, .groups = 9}, tile));
  // Groups that share out the rows may have more than others.
  EXPECT_TRUE(reads_weights_once({.rows = 9 * 32, .groups = 9, .grouped = true}, tile));
  EXPECT_FALSE(reads_weights_once({.rows = 9 * 32 + 1, .groups = 9, .grouped = true}, tile));
}

/// A row of 64-row tiles is left over: those of 256 tokens have no empty half.
TEST(ChooseTile, TakesTilesOf64RowsOneAfterTheOther) {
  const GemmTile tile{256, 64, 1};
  const auto problem = [](std::int64_t rows) {
    return TileProblem{.n = 2112,
                       .k = 7168,
                       .rows = rows,
                       .multiprocessors = kMultiprocessors,
                       .batch_invariant = true};
  };
  // The second hides most of its start and end.
  EXPECT_LT(estimated_time(problem(2048), tile), 2 * estimated_time(problem(1024), tile) - 1.5);
  const auto parts = choose_parts(problem(4651));
  EXPECT_EQ(parts[0].rows, 3840);
  EXPECT_EQ(parts[1].tile, tile);
}

/// What kernels there are, and what their sums depend on.
TEST(ChooseTile, KnowsItsTiles) {
  for (const GemmTile& t : {GemmTile{256, 64, 1}, GemmTile{256, 128, 8}, GemmTile{96, 128, 2},
                            GemmTile{192, 128, 1}, GemmTile{128, 64, 4}, GemmTile{64, 192, 1},
                            GemmTile{128, 192, 2}, GemmTile{48, 192, 2}, GemmTile{144, 128, 1}})
    EXPECT_TRUE(is_tile(t)) << t.tokens << " " << t.rows << " " << t.splits;
  for (const GemmTile& t :
       {GemmTile{256, 64, 2}, GemmTile{96, 64, 1}, GemmTile{160, 128, 4}, GemmTile{24, 128, 1},
        GemmTile{128, 96, 1}, GemmTile{128, 128, 3}, GemmTile{256, 192, 1}, GemmTile{64, 192, 4},
        GemmTile{48, 128, 1}, GemmTile{144, 64, 1}})
    EXPECT_FALSE(is_tile(t)) << t.tokens << " " << t.rows << " " << t.splits;
  for (const GemmTile& t : {GemmTile{256, 64, 1}, GemmTile{96, 128, 1}, GemmTile{64, 128, 1},
                            GemmTile{64, 128, 1, 1}, GemmTile{16, 128, 1}, GemmTile{128, 192, 1}})
    EXPECT_TRUE(is_batch_invariant(t)) << t.tokens << " " << t.rows << " " << t.next;
  for (const GemmTile& t : {GemmTile{128, 64, 1}, GemmTile{96, 128, 2}, GemmTile{8, 128, 1},
                            GemmTile{16, 32, 1}, GemmTile{64, 64, 1, 1}})
    EXPECT_FALSE(is_batch_invariant(t)) << t.tokens << " " << t.rows << " " << t.splits;
  EXPECT_TRUE(is_one_tile({64, 128, 1, 1}) && is_one_tile({128, 64, 1}));
  EXPECT_FALSE(is_one_tile({64, 128, 1}) || is_one_tile({256, 64, 1}) ||
               is_one_tile({64, 192, 1, 1}));
  EXPECT_FALSE(leaves_room({64, 192, 1, 1})) << "three warpgroups";
}

TEST(ChooseTile, ThereIsABlockForEveryTileHoweverTheRowsAreSharedOut) {
  std::mt19937_64 rng(3);
  for (int i = 0; i < 2000; ++i) {
    TileProblem p = draw_problem(rng);
    p.grouped = true;
    // Few groups get most rows.
    std::vector<std::int64_t> rows(static_cast<std::size_t>(p.groups));
    for (std::int64_t left = p.rows; left > 0;) {
      const std::int64_t some = rng() % 2 ? 1 : draw(rng, left);
      rows[rng() % rows.size()] += some;
      left -= some;
    }
    for (const GemmTile& t : all_tiles()) {
      std::int64_t tiles = 0;
      for (const std::int64_t m : rows) tiles += ceil_div(m, t.tokens);
      tiles *= ceil_div(p.n, t.rows) * t.splits;
      const std::int64_t blocks = block_count(p, t);
      EXPECT_EQ(blocks % t.splits, 0);
      if (is_one_tile(t)) {
        EXPECT_GE(blocks, tiles);
      } else {
        EXPECT_GE(blocks, 1);
        EXPECT_LE(blocks, std::max(2, p.multiprocessors * blocks_per_multiprocessor(t)));
      }
    }
  }
}

}  // namespace
}  // namespace nvfp4::cuda
