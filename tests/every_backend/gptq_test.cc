#include "quantizers/gptq.h"

#include "gptq_cases.h"
#include "ops/factor_gram.h"
#include "testing.h"

namespace nvfp4::every_backend_gptq_test {

using test::GptqLayer;
using test::GptqResult;
using test::run_gptq;

double total(const std::vector<double>& values) {
  double sum = 0;
  for (const double v : values) sum += v;
  return sum;
}

class EveryGptqBackend : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(All, EveryGptqBackend, testing::ValuesIn(test::available_backends()),
                         [](const auto& info) { return test::identifier(info.param); });

TEST_P(EveryGptqBackend, GivesTheBitsOfTheDefinition) {
  static std::map<std::int64_t, GptqResult> wanted;  // by depth
  for (const test::GptqCase& c : test::kGptqCases) {
    const GptqLayer layer(c.depth, 300);
    const GramFactor factor = factor_gram(layer.depth, layer.triangle, 0.05);
    const Matrix w = test::make(c.fill, c.rows, c.depth, 7);
    if (!wanted.contains(c.depth))
      wanted.emplace(c.depth, run_gptq(factor, w.view(), c.sweeps, "reference"));
    const GptqResult got = run_gptq(factor, w.view(), c.sweeps, GetParam());
    EXPECT_TRUE(got.best == wanted.at(c.depth).best) << c.rows << " x " << c.depth;
    EXPECT_EQ(got.chosen, wanted.at(c.depth).chosen);
    EXPECT_EQ(got.errors, wanted.at(c.depth).errors);
  }
}

/// More columns than a block of the factorization, and not a multiple of it.
TEST_P(EveryGptqBackend, FactorsAGramMatrixToTheSameBits) {
  const GptqLayer layer(272, 600);
  const GramFactor wanted = factor_gram(layer.depth, layer.triangle, 0.05, "reference");
  const GramFactor got = factor_gram(layer.depth, layer.triangle, 0.05, GetParam());
  EXPECT_EQ(got.gram, wanted.gram);
  EXPECT_EQ(got.order, wanted.order);
  if (GetParam() == "cpu-sse4") {  // has no fused multiply-add
    for (std::size_t i = 0; i < wanted.upper.size(); ++i)
      ASSERT_NEAR(got.upper[i], wanted.upper[i], 1e-6f * std::abs(wanted.upper[i])) << i;
    return;
  }
  EXPECT_EQ(got.upper, wanted.upper);
  EXPECT_EQ(got.reciprocal, wanted.reciprocal);
  EXPECT_EQ(got.block_inverse, wanted.block_inverse);
  EXPECT_EQ(got.block_upper, wanted.block_upper);
  EXPECT_EQ(got.block_reciprocal, wanted.block_reciprocal);
}

TEST(Gptq, EachStepTakesErrorOffTheOutput) {
  const GptqLayer layer(128, 2000);
  const GramFactor factor = factor_gram(layer.depth, layer.triangle, 0.05);
  const Matrix w = test::make(test::Fill::gaussian, 64, layer.depth, 3);
  const GptqResult alone = run_gptq(factor, w.view(), 0, "");
  const GptqResult descended = run_gptq(factor, w.view(), 4, "");
  const double mse = total(layer.errors(w.view(), alone.mse)),
               weighted = total(layer.errors(w.view(), alone.weighted)),
               gptq = total(layer.errors(w.view(), alone.best)),
               descent = total(layer.errors(w.view(), descended.best));
  EXPECT_LT(weighted, 0.9 * mse);
  EXPECT_LT(gptq, 0.6 * weighted);
  EXPECT_LT(descent, 0.95 * gptq);
}

TEST(Gptq, NoRowIsWorseThanWithoutIt) {
  const GptqLayer layer(64, 40);  // fewer tokens than channels
  const GramFactor factor = factor_gram(layer.depth, layer.triangle, 0.05);
  const Matrix w = test::make(test::Fill::laplace, 100, layer.depth, 5);
  const GptqResult result = run_gptq(factor, w.view(), 4, "");
  const std::vector<double> best = layer.errors(w.view(), result.best),
                            mse = layer.errors(w.view(), result.mse),
                            weighted = layer.errors(w.view(), result.weighted);
  for (std::size_t r = 0; r < best.size(); ++r) {
    EXPECT_LE(best[r], 1.001 * mse[r] + 1e-9) << r;
    EXPECT_LE(best[r], 1.001 * weighted[r] + 1e-9) << r;
  }
}

TEST(GramFactor, IsTheInverseOfPositiveDefiniteMatrices) {
  const GptqLayer layer(272, 600);  // blocks of 128 and a rest
  const GramFactor f = factor_gram(layer.depth, layer.triangle, 0.01);
  EXPECT_FLOAT_EQ(f.damping, 0.01f);
  const auto at = [&](const std::vector<float>& m, std::int64_t i, std::int64_t j) {
    return static_cast<double>(m[static_cast<std::size_t>(i * f.depth + j)]);
  };
  for (std::int64_t i = 0; i < f.depth; ++i)
    for (std::int64_t j = 0; j < f.depth; ++j) {
      double sum = 0;  // (UᵀU H)ij, in the factor's order
      for (std::int64_t k = 0; k < f.depth; ++k)
        for (std::int64_t p = 0; p <= std::min(i, k); ++p)
          sum += at(f.upper, p, i) * at(f.upper, p, k) *
                 at(f.gram, f.order[static_cast<std::size_t>(k)],
                    f.order[static_cast<std::size_t>(j)]);
      EXPECT_NEAR(sum, i == j ? 1 : 0, 2e-4) << i << ", " << j;
    }
  std::vector<double> singular(static_cast<std::size_t>(16 * 17 / 2), 1.0);
  EXPECT_FLOAT_EQ(factor_gram(16, singular, 0.05).damping, 0.05f) << "damping mends rank 1";
  singular[1] = 100;  // twice the mean of the diagonal off it
  expect_error<ValueError>([&] { factor_gram(16, singular, 0.05); }, {"not positive definite"});
  expect_error<ValueError>([&] { factor_gram(16, std::vector<double>(136, 0.0), 0.05); },
                           {"diagonal is zero"});
}

}  // namespace nvfp4::every_backend_gptq_test
