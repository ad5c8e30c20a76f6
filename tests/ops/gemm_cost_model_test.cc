// Tests of how a GEMM is divided for a GPU. They need no GPU.
#include <bit>

#include "backends/cuda/gemm/plan.h"
#include "backends/cuda/gemm/sm90/cost_model.h"
#include "nvfp4/layout.h"
#include "testing.h"

namespace nvfp4::cuda::gemm_cost_model_test {

constexpr int kMultiprocessors = 132;
/// But for those of a routing.
std::vector<KernelConfig> all_tiles() {
  std::vector<KernelConfig> tiles = kernel_configs(kSm90Kernels);
  std::erase_if(tiles, is_routed);
  return tiles;
}

std::int64_t draw(std::mt19937_64& rng, std::int64_t most) {
  const double exponent = std::uniform_real_distribution<>(0, std::log2(double(most)))(rng);
  return std::min(most, static_cast<std::int64_t>(std::exp2(exponent)));
}

KernelProblem draw_problem(std::mt19937_64& rng) {
  return {.n = draw(rng, 200'000),
          .k = 16 * draw(rng, 4096),
          .m = draw(rng, 100'000),
          .groups = rng() % 2 ? 1 : draw(rng, 1024),
          .grouped = rng() % 2 == 0,
          .multiprocessors = rng() % 4 ? kMultiprocessors : static_cast<int>(1 + rng() % 200),
          .batch_invariant = rng() % 4 == 0,
          .swiglu = rng() % 4 == 0};
}

TEST(GemmCostModel, GivesATileThatExistsForEveryProblem) {
  std::mt19937_64 rng(1);
  for (int i = 0; i < 600; ++i) {
    const KernelProblem p = draw_problem(rng);
    const KernelConfig t = choose_kernel(p);
    EXPECT_TRUE(is_kernel(t) && is_possible(p, t)) << t.m << " " << t.n << " " << t.split_k;
    EXPECT_TRUE(!p.batch_invariant || is_batch_invariant(t));
    // No larger a tile than twice what there is.
    EXPECT_TRUE(t.m < 2 * p.m || t.m <= 16) << t.m << " of " << p.m;
  }
}

TEST(GemmCostModel, CopiesHaveHardlyMoreRowsThanNeeded) {
  for (const KernelConfig& t : all_tiles())
    for (std::int64_t rows = 1; rows < 600; ++rows) {
      const int box = box_rows(t, rows);
      EXPECT_LE(box, t.m);
      EXPECT_GE(box, std::min<std::int64_t>(rows, t.m));
      if (is_small_m(t)) {
        EXPECT_LE(box, rows);
      } else {
        EXPECT_EQ(box % 8, 0);  // whole atoms of the swizzle
        EXPECT_LT(box, rows + 8);
      }
    }
}

TEST(GemmCostModel, NextKernelMayStartWithinABlock) {
  const auto expect_within = [](const KernelProblem& p, const KernelConfig& t) {
    EXPECT_GE(t.launch_dependents_step, 0);
    EXPECT_GE(t.prefetch_stages, 1);
    EXPECT_LT(t.launch_dependents_step, std::max<std::int64_t>(1, steps_of(p, t)))
        << p.n << "x" << p.k;
  };
  std::mt19937_64 rng(8);
  int later = 0;
  for (int i = 0; i < 600; ++i) {
    const KernelProblem p = draw_problem(rng);
    for (const PlanPart& part : choose_kernels(p))
      if (part.rows > 0) expect_within(p, part.kernel);
    const KernelConfig t = choose_kernel(p);
    later += t.launch_dependents_step > 0;
    // Two blocks with 64 rows share a multiprocessor.
    const int room = (t.m == 64 ? 2 : 1) * p.multiprocessors;
    if (p.grouped || (block_count(p, t) > room && p.k > 2048)) {
      EXPECT_EQ(t.launch_dependents_step, 0) << "there is no room, or it is not known";
    }
  }
  EXPECT_GT(later, 0);
  // 16 warps: four strips of 16 rows and four parts of the depth, two chunks of 64 each a step.
  EXPECT_EQ(steps_of({.n = 8192, .k = 8192, .m = 8}, {8, 64, 1}), 16);
  EXPECT_EQ(steps_of({.n = 8192, .k = 8208, .m = 8}, {8, 64, 1}), 17);
  EXPECT_EQ(steps_of({.n = 2112, .k = 7168, .m = 4}, {8, 16, 1}), 4);
  EXPECT_EQ(steps_of({.n = 2112, .k = 7168, .m = 5}, {8, 16, 1}), 7) << "half as long";
  // Stages of four chunks, shared out among two blocks.
  EXPECT_EQ(steps_of({.n = 8192, .k = 8192, .m = 16}, {16, 64, 2}), 16);
}

TEST(GemmCostModel, EstimatesDoNotFallAsTheProblemGrows) {
  std::mt19937_64 rng(2);
  const auto least = [](const KernelProblem& p) { return estimated_time(p, choose_kernel(p)); };
  for (int i = 0; i < 1000; ++i) {
    KernelProblem p = draw_problem(rng);
    p.grouped = false;        // those are estimated in two ways
    p.swiglu = false;         // takes the kernel of the same GEMM without it
    p.k = round_up(p.k, 64);  // a tile is for no others
    for (const auto grow : {&KernelProblem::n, &KernelProblem::k, &KernelProblem::m}) {
      KernelProblem larger = p;
      larger.*grow += 64 * draw(rng, 250);
      // A larger tile, which more rows allow, may have been measured to be a little faster.
      EXPECT_GE(least(larger), 0.97 * least(p));
    }
    for (const KernelConfig& t : all_tiles())
      if (is_possible(p, t) && (!p.batch_invariant || is_batch_invariant(t)) && t.m < 2 * p.m &&
          (t.m != kPerWarpXM || p.m <= kPerWarpXM)) {
        EXPECT_LE(least(p), estimated_time(p, t));
      }
  }
}

/// Times on an H200 from docs/benchmarks.md.
TEST(GemmCostModel, EstimatesAreCloseToMeasuredTimes) {
  struct Measured {
    std::int64_t n, k, m;
    double us;
  };
  for (const auto& [n, k, m, us] : {Measured{4096, 7168, 8, 6.15},
                                    {4096, 7168, 64, 9.40},
                                    {4096, 7168, 512, 38.70},
                                    {4096, 7168, 4096, 287},
                                    {2112, 7168, 1, 4.28},
                                    {2112, 7168, 256, 14.27},
                                    {24576, 1536, 32, 9.22},
                                    {24576, 1536, 128, 14.69},
                                    {24576, 1536, 2048, 195},
                                    {7168, 18432, 4, 21.38},
                                    {7168, 18432, 64, 32.56},
                                    {7168, 18432, 1024, 344}}) {
    const KernelProblem p{.n = n, .k = k, .m = m, .multiprocessors = kMultiprocessors};
    EXPECT_NEAR(estimated_time(p, choose_kernel(p)) / us, 1, 0.15) << n << "x" << k << " " << m;
  }
}

TEST(GemmCostModel, TwoPartsCoverAllRowsAndGain) {
  std::mt19937_64 rng(4);
  int twice = 0;
  for (int i = 0; i < 3000; ++i) {
    const KernelProblem p = draw_problem(rng);
    const auto parts = choose_kernels(p);
    EXPECT_EQ(parts[0].rows + parts[1].rows, p.m);
    EXPECT_GT(parts[0].rows, 0);
    EXPECT_TRUE(is_kernel(parts[0].kernel));
    if (parts[1].rows == 0) continue;
    ++twice;
    EXPECT_TRUE(p.groups == 1 && !p.grouped);
    EXPECT_EQ(parts[0].rows % parts[0].kernel.m, 0);
    EXPECT_TRUE(is_kernel(parts[1].kernel));
    double time = 0;
    for (const PlanPart& part : parts) {
      EXPECT_TRUE(!p.batch_invariant || is_batch_invariant(part.kernel));
      KernelProblem of_part = p;
      of_part.m = part.rows;
      time += estimated_time(of_part, part.kernel);
    }
    EXPECT_LT(time, estimated_time(p, choose_kernel(p)));
  }
  EXPECT_GT(twice, 5);
  // Five tiles of 128 rows of W by 26 of 192 tokens for 132 multiprocessors, and eight tokens.
  const auto parts =
      choose_kernels({.n = 640, .k = 2880, .m = 5000, .multiprocessors = kMultiprocessors});
  EXPECT_EQ(parts[1].rows, 8);
  // Two would have fewer rounds of tiles, but each has a start and an end: 88 us, one takes 85.
  const auto one =
      choose_kernels({.n = 7168, .k = 2048, .m = 2048, .multiprocessors = kMultiprocessors});
  EXPECT_EQ(one[1].rows, 0);
}

TEST(GemmCostModel, SwigluIsDividedAsWithoutIt) {
  std::mt19937_64 rng(7);
  const auto expect_same = [](KernelProblem p) {
    p.swiglu = false;
    const auto plain = choose_kernels(p);
    p.swiglu = true;
    const auto swiglu = choose_kernels(p);
    for (int i = 0; i < 2; ++i) {
      KernelConfig t = plain[i].kernel;
      if (t.n == 16) {
        t.n = 32;
        // Twice as many steps of two chunks, or as many of one as there were.
        if (t.m != 8 || plain[i].rows <= 4) t.launch_dependents_step *= 2;
      }
      EXPECT_EQ(swiglu[i].rows, plain[i].rows) << p.n << "x" << p.k << " " << p.m;
      EXPECT_EQ(swiglu[i].kernel, t) << p.n << "x" << p.k << " " << p.m;
      EXPECT_TRUE(swiglu[i].rows == 0 || is_possible(p, swiglu[i].kernel));
    }
  };
  for (int i = 0; i < 600; ++i) expect_same(draw_problem(rng));
  // The last rows are few: estimates of tiles of 16 and 32 rows differ there.
  for (const auto& [n, k, rows] :
       {std::tuple{1536, 1024, 1413}, {2016, 1024, 1028}, {1632, 5440, 3841}})
    expect_same({.n = n, .k = k, .m = rows, .multiprocessors = kMultiprocessors});
}

KernelProblem of_experts(int mean) {
  constexpr int kGroups = 256;
  return {.n = 4096,
          .k = 7168,
          .m = mean * kGroups,
          .groups = kGroups,
          .grouped = true,
          .multiprocessors = kMultiprocessors};
}

TEST(GemmCostModel, RoutedRowsHaveTheirOwnTiles) {
  std::mt19937_64 rng(5);
  for (int i = 0; i < 400; ++i) {
    KernelProblem p = draw_problem(rng);
    p.grouped = p.batch_invariant = false;
    p.m = 1;
    p.routed = true;
    p.k = std::min(p.k, kMostRoutedDepth);
    const auto parts = choose_kernels(p);
    const KernelConfig t = parts[0].kernel;
    EXPECT_EQ(parts[0].rows, 1);
    EXPECT_EQ(parts[1].rows, 0);
    EXPECT_TRUE(is_routed(t) && is_kernel(t) && is_possible(p, t));
    EXPECT_FALSE(is_possible(p, {2, 32, 1}) || is_batch_invariant(t));
    EXPECT_EQ(block_count(p, t), ceil_div(p.n, t.n) * p.groups);
    EXPECT_TRUE(reads_weights_once(p, t));
    p.routed = false;
    EXPECT_FALSE(is_possible(p, t));
    p.routed = true;
    p.k = kMostRoutedDepth + kBlock;
    EXPECT_FALSE(is_possible(p, t));
  }
}

/// The estimate of a full GPU is in proportion to the tiles, whose mean is what it must know.
TEST(GemmCostModel, ExpectedTilesOfGroupsMatchChance) {
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

/// Each shape is a loop of wgmma, which has a multiple of eight columns and registers of its own.
TEST(GemmCostModel, TileShapesAreOrderedAndFit) {
  int several = 0;
  for (const KernelConfig& t : all_tiles()) {
    const int count = m_shapes(t).count();
    several += count > 1 ? 1 : 0;
    ASSERT_GE(count, 1);
    EXPECT_EQ(m_shapes(t)[count - 1], t.m);
    int sum = 0;
    for (int i = 0; i < count; ++i) {
      const int shape = m_shapes(t)[i];
      EXPECT_TRUE(i == 0 || shape > m_shapes(t)[i - 1]) << t.m << " " << t.n;
      EXPECT_TRUE(count == 1 || shape % 8 == 0) << t.m << " " << t.n;
      EXPECT_EQ(m_shapes(t).enough_for(shape), shape);
      EXPECT_EQ(m_shapes(t).enough_for(i == 0 ? 1 : m_shapes(t)[i - 1] + 1), shape);
      sum += shape;
    }
    if (count > 1) {
      EXPECT_LE(sum, t.n == 192 ? 104 : 336) << t.m << " " << t.n;
      EXPECT_FALSE(is_single_tile(t)) << t.m << " " << t.n << " " << t.split_k;
    }
  }
  EXPECT_EQ(several, 6);
}

/// Every row is in one tile, none of which is empty or has more than it can multiply.
TEST(GemmCostModel, TilesOfAGroupHaveAllItsRows) {
  for (const KernelConfig& t : all_tiles())
    for (int rows = 1; rows < 1200; ++rows) {
      const auto tiles = static_cast<int>(ceil_div(rows, t.m));
      const int width = m_shapes(t).rows_of_tile(rows, tiles);
      ASSERT_LE(width, t.m);
      ASSERT_EQ(m_shapes(t).enough_for(width), width) << t.m << " " << rows;
      ASSERT_TRUE((tiles - 1) * width < rows && rows <= tiles * width)
          << t.m << " " << t.n << ": " << rows << " rows";
    }
  // 270 rows: two tiles of 144 and 126, not three of 128 or two whole ones.
  EXPECT_EQ(m_shapes({144, 128, 1}).rows_of_tile(270, 2), 144);
  EXPECT_EQ(m_shapes({144, 128, 1}).rows_of_tile(250, 2), 128);
  EXPECT_EQ(m_shapes({160, 128, 1}).rows_of_tile(170, 2), 160);
}

TEST(GemmCostModel, OneTileOfTokensReadsWeightsOnce) {
  const KernelConfig tile{64, 128, 1};
  EXPECT_TRUE(reads_weights_once({.m = 64}, tile));
  EXPECT_FALSE(reads_weights_once({.m = 65}, tile));
  EXPECT_TRUE(reads_weights_once({.m = 64, .groups = 9}, tile)) << "each has all rows";
  EXPECT_FALSE(reads_weights_once({.m = 65, .groups = 9}, tile));
  // Groups that share out the rows may have more than others.
  EXPECT_TRUE(reads_weights_once({.m = 9 * 32, .groups = 9, .grouped = true}, tile));
  EXPECT_FALSE(reads_weights_once({.m = 9 * 32 + 1, .groups = 9, .grouped = true}, tile));
}

TEST(GemmCostModel, EveryTileHasABlock) {
  std::mt19937_64 rng(3);
  for (int i = 0; i < 400; ++i) {
    KernelProblem p = draw_problem(rng);
    p.grouped = true;
    // Few groups get most rows.
    std::vector<std::int64_t> rows(static_cast<std::size_t>(p.groups));
    for (std::int64_t left = p.m; left > 0;) {
      const std::int64_t some = rng() % 2 ? 1 : draw(rng, left);
      rows[rng() % rows.size()] += some;
      left -= some;
    }
    for (const KernelConfig& t : all_tiles()) {
      std::int64_t tiles = 0;
      for (const std::int64_t m : rows) tiles += ceil_div(m, t.m);
      tiles *= ceil_div(p.n, t.n) * t.split_k;
      const std::int64_t blocks = block_count(p, t);
      EXPECT_EQ(blocks % t.split_k, 0);
      if (is_single_tile(t)) {
        EXPECT_GE(blocks, tiles);
      } else {
        EXPECT_GE(blocks, 1);
        EXPECT_LE(blocks, std::max(2, p.multiprocessors * blocks_per_multiprocessor(t)));
      }
    }
  }
}

}  // namespace nvfp4::cuda::gemm_cost_model_test
