// Tests of how tiles are copied and stored: numbers of rows, whole tiles, two GEMMs. Skipped
// without a Hopper GPU.
#include "backends/cuda/gemm/sm90/cost_model.h"
#include "tensor_core_cases.h"

namespace nvfp4::test::tensor_core_stores_test {

TEST_F(CudaGemm, FewRowsAreRightWithEveryTile) {
  std::uint64_t seed = 4 * fresh_seed() + 3;
  for (const std::int64_t k : {704, 720, 6208})
    for (const std::int64_t m : {3, 5, 9, 12, 15}) {
      ++seed;
      const Weights w(1, 200, k, GlobalScope::vector, seed);
      const DenseX x(m, k, DType::bf16, seed);
      for (const KernelConfig& t : all_tiles(k)) {
        if (t.m > 16) continue;
        if (k > 720 && t.n > 16) continue;  // whose stages are many in every other test
        const std::string what = name_of({w.n, k}, m, seed) + " " + name_of(t);
        expect_product(x, w, DType::bf16, {.kernel = t}, 8, what);
        const Output one = run(GemmForm::dense, x, w, DType::bf16, {.kernel = t}, {}, {}, 8);
        const Output group = run(GemmForm::grouped, x, w, DType::bf16, {.kernel = t}, {},
                                 {static_cast<std::int32_t>(m)}, 8);
        EXPECT_TRUE(same_bits(one.host, group.host)) << what << " as a group";
      }
    }
}

TEST_F(CudaGemm, OfQuantizedRowsStoresWholeTiles) {
  const std::uint64_t seed = 4 * fresh_seed() + 3;
  const Weights w(1, 328, 272, GlobalScope::vector, seed);
  for (const GlobalScope scope : {GlobalScope::tensor, GlobalScope::vector})
    for (const std::int64_t m : {74, 150, 600})  // of the first two not every warpgroup has rows
      for (const KernelConfig& t : whole_tiles())
        expect_product(QuantizedX(m, 272, scope, seed), w, DType::bf16, {.kernel = t}, 8,
                       std::to_string(m) + " " + name_of(t) + " seed " + std::to_string(seed));
}

/// The second of two products may be one of parts of the depth.
TEST_F(CudaGemm, OfTwoPartsIsRightOnBothSides) {
  constexpr std::int64_t kN = 2112, kK = 7168, kSome = 24;
  std::int64_t m = 1024;
  std::array<cuda::PlanPart, 2> parts;
  do parts = cuda::choose_kernels({.n = kN, .k = kK, .m = ++m, .multiprocessors = 132});
  while (m < 4096 && (parts[1].rows < kSome || !cuda::is_single_tile(parts[1].kernel)));
  ASSERT_LT(m, 4096) << "choose other sizes";
  const std::uint64_t seed = 4 * fresh_seed() + 3;
  const Weights w(1, kN, kK, GlobalScope::vector, seed);
  const DenseX x(m, kK, DType::bf16, seed);
  const Output out = run(GemmForm::dense, x, w, DType::bf16, {}, {}, {}, 8);
  for (const std::int64_t row : {std::int64_t{0}, parts[0].rows - kSome / 2, m - kSome})
    EXPECT_LE(error_of(x, row, kSome, 0, kK, w.group(0), out.part(row, kSome, 0, kN),
                       w.alpha_of(0, kAlpha), w.bias_of(0)),
              1)
        << "rows from " << row << " seed " << seed;
}

}  // namespace nvfp4::test::tensor_core_stores_test
