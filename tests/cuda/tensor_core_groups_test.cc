// Grouped products on tensor cores. Skipped without a Hopper GPU.
#include "tensor_core_cases.h"

namespace nvfp4::test::tensor_core_groups_test {

/// Rows of groups, contiguous or with gaps between them.
struct Groups {
  std::vector<std::int32_t> starts, ends;
  std::int32_t rows = 0;

  Groups(std::size_t count, bool padded, std::uint64_t seed) {
    std::mt19937_64 rng(seed);
    for (std::size_t g = 0; g < count; ++g) {
      if (padded) rows += static_cast<std::int32_t>(rng() % 20);
      if (padded) starts.push_back(rows);
      const int some[] = {0, 0, 1, 3, 8, 40, 47, 70, 90, 135, 200, 280};
      rows += some[rng() % std::size(some)];
      ends.push_back(rows);
    }
    rows += 3;  // of no group
  }
  std::int32_t start(std::size_t g) const {
    return !starts.empty() ? starts[g] : g == 0 ? 0 : ends[g - 1];
  }
};

template <class X>
void expect_groups(const X& x, const Weights& w, const Groups& groups, DType type,
                   const GpuOptions& o, const std::string& what) {
  const Output out = run(GemmForm::grouped, x, w, type, o, groups.starts, groups.ends,
                         w.n % 8 == 0 ? 8 : 5);  // stores are wide if they can
  std::int64_t row = 0;
  for (std::size_t g = 0; g < groups.ends.size(); ++g) {
    const std::int64_t from = groups.start(g), rows = groups.ends[g] - from;
    for (; row < from; ++row)
      ASSERT_TRUE(out.untouched(row, 0)) << what << ": row " << row << " is of no group";
    row = from + rows;
    const auto i = static_cast<std::int64_t>(g);
    EXPECT_LE(error_of(x, from, rows, 0, w.k, w.group(i), out.part(from, rows, 0, w.n),
                       w.alpha_of(i, kAlpha), w.bias_of(i)),
              1)
        << what << " group " << g;
  }
  for (; row < out.rows; ++row) ASSERT_TRUE(out.untouched(row, 0)) << what << ": the last rows";
}

TEST_F(CudaGemm, GroupedIsRight) {
  std::uint64_t seed = 10 * fresh_seed();
  for (const Shape& s : {Shape{72, 80}, Shape{200, 256}, Shape{13, 320}})
    for (const std::size_t count : {1, 7, 40})
      for (const bool padded : {false, true}) {
        ++seed;
        const Groups groups(count, padded, seed);
        const Weights w(static_cast<std::int64_t>(count), s.n, s.k,
                        seed % 3 ? GlobalScope::vector : GlobalScope::tensor, seed);
        const std::string what = std::to_string(count) + " groups, " + name_of(s, 0, seed);
        expect_groups(DenseX(groups.rows, s.k, DType::bf16, seed), w, groups, kTypes[seed % 3], {},
                      what);
        expect_groups(QuantizedX(groups.rows, s.k, GlobalScope::vector, seed), w, groups,
                      DType::f32, {}, what + " quantized");
      }
}

TEST_F(CudaGemm, GroupedIsRightWithEveryTile) {
  const std::uint64_t seed = 4 * fresh_seed() + 3;
  const Groups groups(9, true, seed);
  const Weights w(9, 136, 528, GlobalScope::vector, seed);
  const DenseX x(groups.rows, 528, DType::bf16, seed);
  int early = 0;
  const cuda::KernelProblem problem{
      .n = 136, .k = 528, .m = groups.rows, .groups = 9, .grouped = true};
  for (KernelConfig t : all_tiles(528)) {
    if (!tested_architecture().why_impossible(problem, t).empty()) continue;
    t.prefetch_stages = stages(early++ % 4);
    const std::string what = name_of(t) + " seed " + std::to_string(seed);
    for (const DType type : {DType::f32, DType::bf16})
      expect_groups(x, w, groups, type, {.kernel = t}, what);
    expect_groups(QuantizedX(groups.rows, 528, GlobalScope::vector, seed), w, groups, DType::bf16,
                  {.kernel = t}, what + " quantized");
  }
}

/// A block on an H200 has a tile of few rows, then one of many: their stores must not meet.
TEST_F(CudaGemm, FewThenManyRowsEqualSmallTiles) {
  const std::uint64_t seed = 4 * fresh_seed() + 3;
  std::vector<std::int32_t> ends;
  std::int32_t rows = 0;
  for (int g = 0; g < 264; ++g) ends.push_back(rows += g < 132 ? 20 : 64);
  for (const std::int64_t k : {256, 512})
    for (const int n : {128, 192}) {
      const Weights w(264, n, k, GlobalScope::vector, seed);
      const DenseX x(rows, k, DType::bf16, seed);
      for (const DType type : {DType::bf16, DType::f32}) {
        const Output want =
            run(GemmForm::grouped, x, w, type, {.kernel = {32, 128, 1}}, {}, ends, 8);
        for (const int tokens : {48, 64, 96, 128, 144})
          for (int repeat = 0; repeat < repeats(10); ++repeat) {
            const KernelConfig t{tokens, n, 1};
            if (!cuda::is_kernel(t) || !same_order(t, {32, 128, 1})) break;
            ASSERT_TRUE(same_bits(
                run(GemmForm::grouped, x, w, type, {.kernel = t}, {}, ends, 8).host, want.host))
                << name_of(t) << " K = " << k << " seed " << seed;
          }
      }
    }
}

/// The copy engine stores whole tiles, the threads what is left of a group and of the rows of W.
TEST_F(CudaGemm, WholeAndPartialTilesEqualSmallTiles) {
  const std::uint64_t seed = 4 * fresh_seed() + 3;
  std::vector<std::int32_t> ends;
  std::int32_t rows = 0;
  for (const int of_group : {64,  0,  65, 128, 1,  256, 130, 33, 300, 127, 512, 96,  40,
                             257, 16, 15, 17,  48, 49,  80,  81, 144, 145, 137, 288, 31})
    ends.push_back(rows += of_group);
  const auto groups = static_cast<std::int64_t>(ends.size());
  // One stage and a part of one, and more than there are: the ring goes round within a tile.
  for (const auto& [n, k] : {std::pair{200, 272}, {640, 272}, {200, 1552}})
    for (const DType type : {DType::bf16, DType::f16}) {
      const Weights w(groups, n, k, GlobalScope::vector, seed);
      const DenseX x(rows, k, type, seed);
      const Output want = run(GemmForm::grouped, x, w, type, {.kernel = {32, 128, 1}}, {}, ends, 8);
      for (const KernelConfig& t : whole_tiles())
        for (int repeat = 0; repeat < repeats(3) && same_order(t, {32, 128, 1}); ++repeat)
          ASSERT_TRUE(same_bits(run(GemmForm::grouped, x, w, type, {.kernel = t}, {}, ends, 8).host,
                                want.host))
              << name_of(t) << " N = " << n << " K = " << k << " seed " << seed;
    }
}

TEST_F(CudaGemm, OfNoRowsInAnyGroupWritesNothing) {
  const Weights w(5, 72, 64, GlobalScope::tensor, 1);
  const DenseX x(20, 64, DType::bf16, 1);
  for (const KernelConfig& t : {KernelConfig{}, KernelConfig{2, 32, 1}, KernelConfig{8, 64, 1},
                                KernelConfig{8, 128, 4}, KernelConfig{128, 128, 1}}) {
    const Output out =
        run(GemmForm::grouped, x, w, DType::bf16, {.kernel = t}, {}, {0, 0, 0, 0, 0});
    for (std::int64_t r = 0; r < 20; ++r) ASSERT_TRUE(out.untouched(r, 0));
  }
}

template <class X>
void expect_every_group(const X& x, const Weights& w, DType type, const std::string& what,
                        const KernelConfig& tile = {}) {
  const Output out = run(GemmForm::every_group, x, w, type, {.kernel = tile}, {}, {},
                         w.n % 8 == 0 && tile.n != 0 ? 8 : 5);
  for (std::int64_t g = 0; g < w.groups; ++g)
    EXPECT_LE(error_of(x, 0, x.rows(), x.cols == w.k ? 0 : g * w.k, w.k, w.group(g),
                       out.part(0, x.rows(), g * w.n, w.n), w.alpha_of(g, kAlpha), w.bias_of(g)),
              1)
        << what << " group " << g;
}

TEST_F(CudaGemm, OfEveryGroupIsRight) {
  std::uint64_t seed = 10 * fresh_seed();
  for (const Shape& s : {Shape{72, 80}, Shape{200, 256}, Shape{13, 48}})
    for (const std::int64_t m : {0, 1, 33, 150})
      for (const bool shared : {false, true}) {
        ++seed;
        const Weights w(5, s.n, s.k, seed % 3 ? GlobalScope::vector : GlobalScope::tensor, seed);
        const std::int64_t cols = shared ? s.k : 5 * s.k;
        expect_every_group(DenseX(m, cols, DType::bf16, seed), w, kTypes[seed % 3],
                           name_of(s, m, seed));
        expect_every_group(QuantizedX(m, cols, GlobalScope::vector, seed), w, DType::f32,
                           name_of(s, m, seed) + " quantized");
      }
}

TEST_F(CudaGemm, OfEveryGroupIsRightWithEveryTile) {
  const std::uint64_t seed = 4 * fresh_seed() + 1;
  for (const std::int64_t m : {1, 2, 19, 150})
    for (const bool shared : {false, true})
      for (const KernelConfig& t : all_tiles(576)) {
        const Weights w(3, 136, 576, GlobalScope::vector, seed);
        const std::string what = name_of(t) + " seed " + std::to_string(seed);
        expect_every_group(DenseX(m, shared ? 576 : 3 * 576, DType::bf16, seed), w, DType::bf16,
                           what, t);
      }
}

TEST_F(CudaGemm, GroupsWriteNothingBesideOddColumns) {
  const std::uint64_t seed = 4 * fresh_seed();
  for (const KernelConfig& t : {KernelConfig{}, KernelConfig{2, 64, 1}, KernelConfig{16, 32, 1},
                                KernelConfig{16, 128, 1}, KernelConfig{64, 128, 1}}) {
    const Weights w(2, 12, 64, GlobalScope::vector, seed);
    const DenseX x(40, 64, DType::bf16, seed);
    // Rows of 16 columns, all of them aligned: run() looks at the four behind each row.
    run(GemmForm::grouped, x, w, DType::bf16, {.kernel = t}, {}, {25, 40}, 4);
  }
}

}  // namespace nvfp4::test::tensor_core_groups_test
