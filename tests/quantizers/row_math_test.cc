// The reference against FP64: the definition itself must be right.
#include "quantizers/row_math.h"

#include "nvfp4/activation.h"
#include "test_matrices.h"
#include "testing.h"

namespace nvfp4::row_math_test {

using test::Fill;
using test::make;

constexpr double kUnit = 0x1p-24;  // relative error of one rounding
const QuantizeOptions kReference{.backend = "reference"};

double square(double x) { return x * x; }

TEST(RowMath, NormIsWithinItsRoundings) {
  for (const std::int64_t n : {16, 48, 1040, 7168}) {
    const Matrix x = make(Fill::student, 5, n, 3, DType::bf16);
    const Matrix w = make(Fill::gaussian, 1, n, 4);
    Matrix y(DType::f32, 5, n);
    std::vector<float> rstd(5);
    rms_norm_into(x.view(), {w.data<float>(), static_cast<std::size_t>(n)}, y.span(),
                  {.eps = 1e-5f, .rstd = rstd.data()}, kReference);
    // Squares, tree, mean, eps: halved by the root; root, reciprocal, two products.
    const double levels = std::ceil(std::log2(static_cast<double>(n)));
    const double bound = ((levels + 4) / 2 + 4) * kUnit * 1.01;
    for (std::int64_t r = 0; r < 5; ++r) {
      double sum = 0;
      for (std::int64_t c = 0; c < n; ++c) sum += square(x.view().at(r, c));
      const double exact = 1 / std::sqrt(sum / static_cast<double>(n) + double{1e-5f});
      EXPECT_NEAR(rstd[static_cast<std::size_t>(r)] / exact, 1.0, bound);
      for (std::int64_t c = 0; c < n; ++c) {
        const double want = x.view().at(r, c) * exact * w.view().at(0, c);
        ASSERT_NEAR(y.view().at(r, c), want, bound * std::abs(want)) << r << " " << c;
      }
    }
  }
}

TEST(RowMath, ResidualIsAddedFirstAndRoundedOnce) {
  const Matrix x = make(Fill::gaussian, 3, 64, 1, DType::bf16);
  const Matrix residual = make(Fill::gaussian, 3, 64, 2, DType::bf16);
  const std::vector<float> ones(64, 1.0f);
  Matrix sum(DType::bf16, 3, 64), y(DType::f32, 3, 64), same(DType::f32, 3, 64);
  rms_norm_into(x.view(), ones, y.span(), {.residual = residual.view(), .residual_out = sum.span()},
                kReference);
  for (std::int64_t r = 0; r < 3; ++r)
    for (std::int64_t c = 0; c < 64; ++c)
      EXPECT_EQ(sum.view().at(r, c),
                BF16::from_float(x.view().at(r, c) + residual.view().at(r, c)).to_float());
  rms_norm_into(sum.view(), ones, same.span(), {}, kReference);
  for (std::int64_t r = 0; r < 3; ++r)
    for (std::int64_t c = 0; c < 64; ++c) EXPECT_EQ(y.view().at(r, c), same.view().at(r, c));
}

TEST(RowMath, MixedStreamsAreWithinTheirRoundings) {
  const std::int64_t n = 272;
  for (const std::int64_t streams : {1, 2, 3, 4}) {
    const Matrix x = make(Fill::gaussian, 7, streams * n, 5, DType::f16);
    const Matrix mix = make(Fill::gaussian, 7, streams, 6);
    Matrix y(DType::f32, 7, n);
    mix_streams_into(x.view(), mix.view(), y.span(), kReference);
    for (std::int64_t r = 0; r < 7; ++r)
      for (std::int64_t c = 0; c < n; ++c) {
        double want = 0, size = 0;
        for (std::int64_t h = 0; h < streams; ++h) {
          const double product = double{mix.view().at(r, h)} * x.view().at(r, h * n + c);
          want += product;
          size += std::abs(product);
        }
        ASSERT_NEAR(y.view().at(r, c), want, static_cast<double>(streams) * kUnit * 1.01 * size);
      }
  }
}

TEST(RowMath, SwigluIsAsCloseAsItsRoundingsAllow) {
  const std::int64_t n = 1040;
  for (const int interleave : {0, 8, 1})
    for (const float limit : {INFINITY, 7.0f}) {
      Matrix x = make(Fill::gaussian, 9, 2 * n, 8);
      for (std::int64_t i = 0; i < 9 * 2 * n; ++i) x.data<float>()[i] *= 20;
      Matrix y(DType::f32, 9, n);
      swiglu_into(x.view(), y.span(), {.interleave = interleave, .limit = limit}, kReference);
      for (std::int64_t r = 0; r < 9; ++r)
        for (std::int64_t c = 0; c < n; ++c) {
          const std::int64_t at =
              interleave == 0 ? c : c / interleave * 2 * interleave + c % interleave;
          double gate = x.view().at(r, at);
          double up = x.view().at(r, at + (interleave == 0 ? n : interleave));
          gate = std::min(gate, double{limit});
          up = std::min(std::max(up, -double{limit}), double{limit});
          const double want = gate / (1 + std::exp(-gate)) * up;
          // The exponential 5 (two ulp and a rounding), sum, reciprocal, products. Below -88.72 its
          // denominator is infinite, and the result 0.
          ASSERT_NEAR(y.view().at(r, c), want, 9.1 * kUnit * std::abs(want) + 3e-37 * std::abs(up))
              << gate << " " << up;
        }
    }
}

TEST(RowMath, SiluAtTheEdges) {
  EXPECT_EQ(float_bits(silu(-200.0f)), 0x80000000u);
  EXPECT_EQ(silu(200.0f), 200.0f);
  EXPECT_EQ(float_bits(silu(0.0f)), 0u);
  EXPECT_EQ(float_bits(silu(-0.0f)), 0x80000000u);
  EXPECT_EQ(silu(0x1p-149f), 0.0f);  // half of it, a tie
  EXPECT_EQ(silu(INFINITY), INFINITY);
  EXPECT_TRUE(std::isnan(silu(-INFINITY)));  // infinity times zero
  EXPECT_TRUE(std::isnan(silu(NAN)));
  EXPECT_TRUE(std::isnan(swiglu(NAN, 1.0f, 7.0f)));
  EXPECT_TRUE(std::isnan(swiglu(1.0f, NAN, 7.0f)));
  EXPECT_EQ(swiglu(INFINITY, -INFINITY, 7.0f), silu(7.0f) * -7.0f);
}

TEST(RowMath, GramIsAsCloseAsItsRoundingsAllow) {
  for (const std::int64_t rows : {0, 1, 9, 300})
    for (const int block : {16, 32}) {
      const Matrix x = make(Fill::student, rows, 3 * block, 9, DType::bf16);
      Matrix out(DType::f32, 3 * block, block);
      for (const bool accumulate : {false, true}) gram_into(x.view(), out.span(), accumulate);
      const double additions = static_cast<double>(rows) / kGramSums + 6;
      for (std::int64_t k = 0; k < 3 * block; ++k)
        for (std::int64_t b = 0; b < block; ++b) {
          double want = 0, size = 0;
          for (std::int64_t t = 0; t < rows; ++t) {
            const double product =
                double{x.view().at(t, k)} * x.view().at(t, k / block * block + b);
            want += 2 * product;
            size += 2 * std::abs(product);
          }
          ASSERT_NEAR(out.view().at(k, b), want, additions * kUnit * 1.01 * size);
        }
    }
}

}  // namespace nvfp4::row_math_test
