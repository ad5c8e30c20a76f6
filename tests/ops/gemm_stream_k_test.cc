// Tests of the part of K that other blocks compute. They need no GPU.
#include "backends/cuda/gemm/sm90/cost_model.h"
#include "nvfp4/layout.h"
#include "testing.h"

namespace nvfp4::cuda::gemm_stream_k_test {

constexpr int kMultiprocessors = 132;

KernelProblem deep(std::int64_t rows) {
  return {.n = 7168, .k = 18432, .m = rows, .multiprocessors = kMultiprocessors, .stream_k = true};
}
KernelConfig stream_k(int m, int split_k, int steps) {
  return {.m = m, .n = 64, .split_k = split_k, .stream_k_steps = steps};
}

TEST(GemmStreamK, IsUsedOnlyWithWorkspace) {
  for (const auto& [rows, help] : {std::pair{16, 4}, {32, 4}, {64, 9}}) {
    EXPECT_EQ(choose_kernel(deep(rows)).stream_k_steps, help) << rows;
    KernelProblem without = deep(rows);
    without.stream_k = false;
    EXPECT_EQ(choose_kernel(without).stream_k_steps, 0) << rows;
    KernelProblem invariant = deep(rows);
    invariant.batch_invariant = true;
    EXPECT_EQ(choose_kernel(invariant).stream_k_steps, 0);
    KernelProblem swiglu = deep(rows), plain = without;
    swiglu.swiglu = plain.swiglu = true;
    EXPECT_EQ(choose_kernel(swiglu), choose_kernel(plain));
  }
}

TEST(GemmStreamK, IsEstimatedForDeepProductsWithFewTiles) {
  KernelProblem p = deep(64);
  p.k = 16384;
  KernelConfig tile = choose_kernel(p);
  EXPECT_GE(tile.stream_k_steps, 4);
  EXPECT_LE(tile.stream_k_steps, 16);
  const double time = estimated_time(p, tile);
  tile.stream_k_steps = 0;
  EXPECT_LT(time, estimated_time(p, tile));
  p.k = 2048;  // eight steps
  EXPECT_EQ(choose_kernel(p).stream_k_steps, 0);
  p.k = 16400;  // the last step is not whole
  EXPECT_EQ(choose_kernel(p).stream_k_steps, 0);
  p = deep(64);
  p.n = 8448;  // 132 tiles of 64
  EXPECT_EQ(choose_kernel(p).stream_k_steps, 0);
}

TEST(GemmStreamK, NeedsWhatItsKernelNeeds) {
  const KernelProblem p = deep(60);
  EXPECT_TRUE(can_stream_k(p, stream_k(64, 1, 8)));
  EXPECT_TRUE(can_stream_k(p, stream_k(64, 1, 71)));
  EXPECT_FALSE(can_stream_k(p, stream_k(64, 1, 72)));  // a block keeps none of 72
  EXPECT_FALSE(can_stream_k(p, stream_k(64, 2, 8)));   // 224 blocks
  EXPECT_FALSE(can_stream_k(
      p, {.m = 64, .n = 64, .split_k = 1, .launch_dependents_step = 1, .stream_k_steps = 8}));
  EXPECT_FALSE(can_stream_k(p, {.m = 64, .n = 128, .split_k = 1, .stream_k_steps = 8}));
  EXPECT_FALSE(can_stream_k(p, stream_k(16, 1, 8)));  // a tile of strips
  EXPECT_FALSE(can_stream_k(p, {.m = 8, .n = 64, .split_k = 2, .stream_k_steps = 8}));
  EXPECT_FALSE(can_stream_k(p, {.m = 128, .n = 64, .split_k = 1, .stream_k_steps = 8}));
  KernelProblem other = p;
  other.stream_k = false;
  EXPECT_FALSE(can_stream_k(other, stream_k(64, 1, 8)));
  other = p;
  other.groups = 2;
  other.n = 3584;
  EXPECT_FALSE(can_stream_k(other, stream_k(64, 1, 8)));
  other = p;
  other.grouped = true;
  EXPECT_FALSE(can_stream_k(other, stream_k(64, 1, 8)));
  other = p;
  other.batch_invariant = true;
  EXPECT_FALSE(can_stream_k(other, stream_k(64, 1, 8)));
  other = p;
  other.swiglu = true;
  EXPECT_FALSE(can_stream_k(other, stream_k(64, 1, 8)));
  other = p;
  other.m = 0;
  EXPECT_FALSE(can_stream_k(other, stream_k(64, 1, 8)));
  EXPECT_EQ(choose_kernel(other).stream_k_steps, 0);
  other = p;
  other.n = 131 * 64;  // one helper for 131 blocks
  EXPECT_FALSE(can_stream_k(other, stream_k(64, 1, 1)));
  EXPECT_FALSE(is_possible(other, stream_k(64, 1, 1)));
}

TEST(GemmStreamK, HelpersFillTheGpuWithinTheWorkspace) {
  std::mt19937_64 rng(7);
  int count = 0;
  for (int i = 0; i < 20'000; ++i) {
    const KernelProblem p{.n = static_cast<std::int64_t>(1 + rng() % 20'000),
                          .k = static_cast<std::int64_t>(16 * (1 + rng() % 1500)),
                          .m = static_cast<std::int64_t>(1 + rng() % 200),
                          .multiprocessors = static_cast<int>(1 + rng() % 200),
                          .stream_k = rng() % 4 != 0};
    const int tokens = 16 << rng() % 3, splits = 1 << rng() % 4;
    for (const KernelConfig& t :
         {stream_k(tokens, splits, static_cast<int>(1 + rng() % 20)), choose_kernel(p)}) {
      if (t.stream_k_steps == 0) {
        EXPECT_EQ(stream_k_block_count(p, t), 0);
        continue;
      }
      if (!can_stream_k(p, t)) continue;
      ++count;
      EXPECT_TRUE(p.stream_k && is_possible(p, t));
      const std::int64_t blocks = block_count(p, t), stream_k_blocks = stream_k_block_count(p, t);
      EXPECT_GE(stream_k_blocks, 1);
      EXPECT_LE(stream_k_blocks, blocks);
      // Then blocks of one rank are helped by blocks of that rank, and clusters are whole.
      EXPECT_EQ(stream_k_blocks % t.split_k, 0);
      EXPECT_LE(blocks + stream_k_blocks, p.multiprocessors * blocks_per_multiprocessor(t));
      EXPECT_LE(ceil_div(blocks, stream_k_blocks), kMostTilesOfStreamKBlock);
      EXPECT_LE(blocks, kMostStreamKTiles);
      EXPECT_LE(blocks * stream_k_sum_bytes(t), kStreamKSumBytes);
      EXPECT_LT(t.stream_k_steps, steps_of(p, t));
    }
  }
  EXPECT_GT(count, 250);
}

}  // namespace nvfp4::cuda::gemm_stream_k_test
