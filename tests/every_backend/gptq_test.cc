#include "quantizers/gptq.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <random>

#include "backends/backend.h"
#include "checkpoint/expect_error.h"
#include "nvfp4/error.h"
#include "nvfp4/quantize.h"
#include "test_matrices.h"

namespace nvfp4 {
namespace {

/// Inputs whose channels are correlated and of different size, and what they add up to.
struct Layer {
  std::int64_t depth;
  std::vector<double> gram;      // [K, K]
  std::vector<double> triangle;  // its upper one

  Layer(std::int64_t k, std::int64_t tokens, unsigned seed = 1)
      : depth(k), gram(static_cast<std::size_t>(k * k)) {
    std::mt19937_64 rng(seed);
    std::normal_distribution<double> normal;
    std::vector<double> size(static_cast<std::size_t>(k)), x(static_cast<std::size_t>(k));
    for (double& s : size) s = std::exp(normal(rng));
    for (std::int64_t t = 0; t < tokens; ++t) {
      double before = 0;
      for (std::size_t i = 0; i < x.size(); ++i) {
        before = 0.8 * before + normal(rng);
        x[i] = size[i] * before;
      }
      for (std::size_t i = 0; i < x.size(); ++i)
        for (std::size_t j = 0; j < x.size(); ++j) gram[i * x.size() + j] += x[i] * x[j];
    }
    for (std::int64_t i = 0; i < k; ++i)
      for (std::int64_t j = i; j < k; ++j)
        triangle.push_back(gram[static_cast<std::size_t>(i * k + j)]);
  }

  /// ‖X (w - ŵ)‖² of every row, in FP64.
  std::vector<double> errors(const MatrixView& w, const QuantizedMatrix& q) const {
    const Matrix decoded = dequantize(q.view(), DType::f32);
    std::vector<double> sums;
    for (std::int64_t r = 0; r < w.rows; ++r) {
      double sum = 0;
      for (std::int64_t i = 0; i < depth; ++i)
        for (std::int64_t j = 0; j < depth; ++j)
          sum += gram[static_cast<std::size_t>(i * depth + j)] *
                 static_cast<double>(w.at(r, i) - decoded.view().at(r, i)) *
                 static_cast<double>(w.at(r, j) - decoded.view().at(r, j));
      sums.push_back(sum);
    }
    return sums;
  }
};

double total(const std::vector<double>& values) {
  double sum = 0;
  for (const double v : values) sum += v;
  return sum;
}

struct Result {
  QuantizedMatrix mse, weighted, best;
  std::vector<std::uint8_t> chosen;
};

Result run(const Layer& layer, const GramFactor& factor, const MatrixView& w, int sweeps,
           const std::string& backend) {
  const GlobalScale global = GlobalScale::from_amax(amax(w), Quantizer::mse);
  QuantizeOptions options{.quantizer = Quantizer::mse, .global = {&global, 1}};
  Result result{
      quantize(w, options), {}, {}, std::vector<std::uint8_t>(static_cast<std::size_t>(w.rows))};
  options.weights = factor.weights;
  result.weighted = quantize(w, options);
  result.best = quantize(w, options);
  const GptqJob job{.gram = &factor,
                    .x = static_cast<const float*>(w.data),
                    .rows = w.rows,
                    .divisor = global.divisor,
                    .sweeps = sweeps,
                    .mse_codes = result.mse.codes(),
                    .mse_scales = result.mse.scales(),
                    .codes = result.best.span().codes,
                    .scales = result.best.span().scales,
                    .chosen = result.chosen.data()};
  find_backend(backend).gptq(job, 0, w.rows);
  EXPECT_EQ(layer.depth, factor.depth);
  return result;
}

class EveryGptqBackend : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(All, EveryGptqBackend, testing::ValuesIn(test::available_backends()),
                         [](const auto& info) { return test::identifier(info.param); });

struct BitCase {
  std::int64_t rows, depth;
  int sweeps;
  test::Fill fill;
};
// More rows than a panel, more columns than a batch, and neither a multiple of its size.
constexpr BitCase kBitCases[] = {{66, 144, 2, test::Fill::gaussian},
                                 {3, 16, 0, test::Fill::student},
                                 {5, 272, 1, test::Fill::sparse},
                                 {2, 48, 3, test::Fill::tiny},
                                 {1, 32, 1, test::Fill::zero}};

TEST_P(EveryGptqBackend, GivesTheBitsOfTheDefinition) {
  static std::map<std::int64_t, Result> wanted;  // by depth
  for (const BitCase& c : kBitCases) {
    const Layer layer(c.depth, 300);
    const GramFactor factor = factor_gram(layer.depth, layer.triangle, 0.05);
    const Matrix w = test::make(c.fill, c.rows, c.depth, 7);
    if (!wanted.contains(c.depth))
      wanted.emplace(c.depth, run(layer, factor, w.view(), c.sweeps, "reference"));
    const Result got = run(layer, factor, w.view(), c.sweeps, GetParam());
    EXPECT_TRUE(got.best == wanted.at(c.depth).best) << c.rows << " x " << c.depth;
    EXPECT_EQ(got.chosen, wanted.at(c.depth).chosen);
  }
}

TEST(Gptq, EachStepTakesErrorOffTheOutput) {
  const Layer layer(128, 2000);
  const GramFactor factor = factor_gram(layer.depth, layer.triangle, 0.05);
  const Matrix w = test::make(test::Fill::gaussian, 64, layer.depth, 3);
  const Result alone = run(layer, factor, w.view(), 0, "");
  const Result descended = run(layer, factor, w.view(), 4, "");
  const double mse = total(layer.errors(w.view(), alone.mse)),
               weighted = total(layer.errors(w.view(), alone.weighted)),
               gptq = total(layer.errors(w.view(), alone.best)),
               descent = total(layer.errors(w.view(), descended.best));
  EXPECT_LT(weighted, 0.9 * mse);
  EXPECT_LT(gptq, 0.6 * weighted);
  EXPECT_LT(descent, 0.95 * gptq);
}

TEST(Gptq, NoRowIsWorseThanWithoutIt) {
  const Layer layer(64, 40);  // fewer tokens than channels
  const GramFactor factor = factor_gram(layer.depth, layer.triangle, 0.05);
  const Matrix w = test::make(test::Fill::laplace, 100, layer.depth, 5);
  const Result result = run(layer, factor, w.view(), 4, "");
  const std::vector<double> best = layer.errors(w.view(), result.best),
                            mse = layer.errors(w.view(), result.mse),
                            weighted = layer.errors(w.view(), result.weighted);
  for (std::size_t r = 0; r < best.size(); ++r) {
    EXPECT_LE(best[r], 1.001 * mse[r] + 1e-9) << r;
    EXPECT_LE(best[r], 1.001 * weighted[r] + 1e-9) << r;
  }
}

TEST(GramFactor, IsTheInverseAndRefusesWhatIsNotPositiveDefinite) {
  const Layer layer(48, 300);
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

}  // namespace
}  // namespace nvfp4
