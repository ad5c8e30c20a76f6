// The Hessian objective: what its formula means, in FP64, and what it is for special matrices.
#include "plain_cases.h"
#include "quantizers/encode_block.h"
#include "testing.h"

namespace nvfp4::quantizers_hessian_test {

using test::Fill;
using test::make;

/// rᵀ H r in FP64, r the difference between x and what it is decoded to with `scale`, in units of
/// the global scale; `magnitude` gets Σ |r| |H| |r|.
double exact_cost(const float* x, const float* h, int block, float divisor, E4M3 scale,
                  double& magnitude) {
  double r[kLargestBlock];
  for (int i = 0; i < block; ++i) {
    const double u = static_cast<double>(x[i] * divisor);
    const E2M1 code = E2M1::from_float(x[i] * element_factor(scale, divisor));
    r[i] = u - double{code.to_float()} * scale.to_float();
  }
  double cost = 0;
  magnitude = 0;
  for (int i = 0; i < block; ++i)
    for (int j = 0; j < block; ++j) {
      cost += r[i] * h[i * block + j] * r[j];
      magnitude += std::abs(r[i] * h[i * block + j] * r[j]);
    }
  return cost;
}

TEST(Hessian, ChosenScaleHasTheLeastError) {
  int improved = 0;
  for (const int block : {16, 32})
    for (std::uint64_t seed = 0; seed < 20; ++seed) {
      const std::int64_t k = 4 * block;
      const Matrix x = make(Fill::gaussian, 4, k, seed);
      const Matrix h = test::ill_conditioned_hessian(k, block, seed);
      const QuantizedMatrix q = quantize(x.view(), {.quantizer = Quantizer::mse,
                                                    .block = block,
                                                    .hessian = h.view(),
                                                    .backend = "reference"});
      const float divisor = GlobalScale::from_amax(amax(x.view()), Quantizer::mse).divisor;
      for (std::int64_t r = 0; r < 4; ++r)
        for (std::int64_t b = 0; b < 4; ++b) {
          const float* block_x = x.data<float>() + r * k + b * block;
          const float* block_h = h.data<float>() + b * block * block;
          const auto cost = [&](E4M3 scale, double& magnitude) {
            return exact_cost(block_x, block_h, block, divisor, scale, magnitude);
          };
          double size, other_size;
          const double chosen = cost({q.scales()[r * 4 + b]}, size);
          for (std::uint8_t code = 1; code <= E4M3::kMaxBits; ++code) {
            const double other = cost({code}, other_size);
            const double rounding = (2 * block + 8) * 0x1p-24 * (size + other_size);
            ASSERT_LE(chosen, other + rounding) << "code " << int{code} << " seed " << seed;
          }
          double plain_size;
          const E4M3 plain = choose_scale(Quantizer::mse, block_x, nullptr, block, divisor);
          improved += chosen < 0.9 * cost(plain, plain_size);
        }
    }
  EXPECT_GT(improved, 50);  // it is another choice than without the Hessian
}

// BF16 weights have many elements on a threshold, where r changes its sign with the code: the cost
// must be that of the codes that are written.
TEST(Hessian, TiesEqualBruteForce) {
  for (const std::string& backend : test::available_backends())
    for (const int block : {16, 32})
      for (const float largest : {1.5f, 1.0f, 1.125f, 1.3125f, 1.875f, 1.6640625f}) {
        const std::int64_t rows = 20, k = 4 * block;
        const Matrix x = test::tied_elements(largest, rows, k, 31);
        const Matrix h = test::ill_conditioned_hessian(k, block, 32);
        const QuantizedMatrix q = quantize(
            x.view(),
            {.quantizer = Quantizer::mse, .block = block, .hessian = h.view(), .backend = backend});
        const float divisor = GlobalScale::from_amax(largest, Quantizer::mse).divisor;
        for (std::int64_t r = 0; r < rows; ++r)
          for (std::int64_t b = 0; b < 4; ++b) {
            float values[kLargestBlock];
            for (int i = 0; i < block; ++i) values[i] = x.view().at(r, b * block + i);
            const float* block_h = h.data<float>() + b * block * block;
            double size, other_size;
            const double chosen =
                exact_cost(values, block_h, block, divisor, {q.scales()[r * 4 + b]}, size);
            for (std::uint8_t code = 1; code <= E4M3::kMaxBits; ++code) {
              const double other = exact_cost(values, block_h, block, divisor, {code}, other_size);
              const double rounding = (2 * block + 8) * 0x1p-24 * (size + other_size);
              ASSERT_LE(chosen, other + rounding) << backend << " block " << block << " largest "
                                                  << largest << " code " << int{code};
            }
          }
      }
}

void expect_same(const Matrix& x, int block, const Matrix& hessian, std::span<const float> weights,
                 const std::string& backend) {
  const QuantizeOptions plain{
      .quantizer = Quantizer::mse, .block = block, .weights = weights, .backend = backend};
  QuantizeOptions with = plain;
  with.weights = {};
  with.hessian = hessian.view();
  EXPECT_TRUE(quantize(x.view(), plain) == quantize(x.view(), with)) << backend;
}

TEST(Hessian, DiagonalIsWeightedErrorIdentityIsPlain) {
  for (const std::string& backend : test::available_backends())
    for (const Fill fill : {Fill::gaussian, Fill::ties, Fill::zero, Fill::special, Fill::sparse})
      for (const int block : {16, 32}) {
        const std::int64_t k = 5 * block;
        const Matrix x = make(fill, 37, k, 11);
        std::mt19937_64 rng(12);
        std::uniform_real_distribution<float> uniform(0.01f, 1.5f);
        std::vector<float> weights(static_cast<std::size_t>(k));
        Matrix identity(DType::f32, k, block), diagonal(DType::f32, k, block);
        for (std::int64_t i = 0; i < k; ++i) {
          float& w = weights[static_cast<std::size_t>(i)];
          w = i == 0 ? 1.75f : uniform(rng);  // the largest in [1, 2): not scaled
          test::set(identity.span(), i, i % block, 1.0f);
          test::set(diagonal.span(), i, i % block, w);
        }
        expect_same(x, block, identity, {}, backend);
        expect_same(x, block, diagonal, weights, backend);
      }
}

// Hundreds of thousands of blocks against the search over all 126 scales, on every target.
void expect_brute_force_on_every_target(std::int64_t vectors) {
  for (const Fill fill : {Fill::gaussian, Fill::student, Fill::ties, Fill::subnormal_scales,
                          Fill::special, Fill::saturated})
    for (const int block : {16, 32})
      for (const BlockAxis axis : {BlockAxis::rows, BlockAxis::columns}) {
        const std::int64_t k = 12 * block;
        const bool rows = axis == BlockAxis::rows;
        const Matrix x = make(fill, rows ? vectors : k, rows ? k : vectors, 21);
        const Matrix h = test::ill_conditioned_hessian(k, block, 22);
        QuantizeOptions o{.quantizer = Quantizer::mse,
                          .axis = axis,
                          .block = block,
                          .hessian = h.view(),
                          .backend = "reference"};
        const GlobalScale one;
        if (fill == Fill::saturated) o.global = {&one, 1};
        const QuantizedMatrix want = quantize(x.view(), o);
        for (const std::string& backend : test::available_backends()) {
          o.backend = backend;
          ASSERT_TRUE(quantize(x.view(), o) == want)
              << backend << " fill " << static_cast<int>(fill) << " block " << block;
        }
      }
}
TEST(Hessian, EqualsBruteForceOnEveryTarget) { expect_brute_force_on_every_target(9); }
TEST(HessianSlow, EqualsBruteForceOnEveryTarget) { expect_brute_force_on_every_target(101); }

// Not positive definite, infinite, NaN: any choice is as good as another, but it is the same one.
TEST(Hessian, EveryTargetGivesTheSameBytes) {
  std::mt19937_64 rng(5);
  for (int i = 0; i < 20; ++i) {
    const Matrix x = make(Fill::gaussian, 33, 64, static_cast<std::uint64_t>(i));
    Matrix h = make(i % 2 ? Fill::gaussian : Fill::huge, 64, 16, rng());
    if (i % 4 == 3) test::set(h.span(), 3, 2, i % 8 == 3 ? NAN : INFINITY);
    QuantizeOptions o{.quantizer = Quantizer::mse, .hessian = h.view(), .backend = "reference"};
    const QuantizedMatrix want = quantize(x.view(), o);
    for (const std::string& backend : test::available_backends()) {
      o.backend = backend;
      ASSERT_TRUE(quantize(x.view(), o) == want) << backend << " " << i;
    }
  }
}

}  // namespace nvfp4::quantizers_hessian_test
