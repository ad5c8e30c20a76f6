// Operands of GEMMs in FP8: factors and codes of rows, by the definition and by the reference.
#include "quantizers/fp8_rows.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>
#include <random>

#include "backends/reference/fp8.h"
#include "fragment_cases.h"

namespace nvfp4::fp8_rows_test {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

void expect_least(float amax) {
  const float f = fp8_row_factor(amax);
  int exponent = 0;
  EXPECT_EQ(std::frexp(f, &exponent), 0.5f) << amax;
  EXPECT_LE(amax, 448 * static_cast<double>(f)) << amax;
  EXPECT_TRUE(f == 0x1p-118f || amax > 448 * static_cast<double>(f) / 2) << amax;
  EXPECT_GE(f, 0x1p-118f) << amax;
  EXPECT_EQ(static_cast<double>(f) * static_cast<double>(fp8_row_inverse(f)), 1) << amax;
}

TEST(Fp8RowFactor, IsTheLeastPowerOfTwo) {
  std::mt19937 random(1);
  for (int exponent = -149; exponent < 128; ++exponent)
    for (const double mantissa : {1.0, 1.5, 1.75, 1.7500001, 1.9999999})
      if (const double amax = std::ldexp(mantissa, exponent); amax < 3.4e38)
        expect_least(static_cast<float>(amax));
  for (int i = 0; i < 10000; ++i) expect_least(bits_float(1 + random() % 0x7F7FFFFFu));
}

TEST(Fp8RowFactor, ZeroHasOneAndInfinityNaN) {
  EXPECT_EQ(fp8_row_factor(0), 1);
  EXPECT_TRUE(std::isnan(fp8_row_factor(kInfinity)));
  EXPECT_TRUE(std::isnan(fp8_row_factor(kNaN)));
  EXPECT_TRUE(std::isnan(fp8_row_inverse(kNaN)));
  EXPECT_EQ(fp8_code(0, fp8_row_inverse(kNaN)).bits, 0x7F);
}

/// Expects that no other E4M3 is nearer, and that a tie has the even code.
void expect_nearest(const reference::Fp8Rows& q, const test::Table& values) {
  ASSERT_EQ(std::ssize(q.codes), values.rows * values.cols);
  ASSERT_EQ(std::ssize(q.factors), values.rows);
  for (std::int64_t r = 0; r < values.rows; ++r)
    for (std::int64_t c = 0; c < values.cols; ++c) {
      const std::uint8_t bits = q.codes[static_cast<std::size_t>(r * values.cols + c)];
      const double v = values(r, c) / static_cast<double>(q.factors[static_cast<std::size_t>(r)]);
      const double own = std::fabs(static_cast<double>(E4M3{bits}.to_float()) - v);
      EXPECT_EQ(bits >> 7 != 0, std::signbit(v)) << v;
      for (const int other : {(bits & 0x7F) - 1, (bits & 0x7F) + 1}) {
        if (other < 0 || other > E4M3::kMaxBits) continue;
        const auto o = static_cast<std::uint8_t>(other | (bits & 0x80));
        const double distance = std::fabs(static_cast<double>(E4M3{o}.to_float()) - v);
        ASSERT_TRUE(own < distance || (own == distance && bits % 2 == 0)) << v;
      }
    }
}

TEST(Fp8Reference, RowsOfXAreNearest) {
  for (const DType type : {DType::bf16, DType::f16})
    for (const auto& [rows, cols] : {std::pair{1, 16}, {3, 48}, {17, 80}, {5, 1024}}) {
      const Matrix x = test::make(test::Fill::gaussian, rows, cols, 3, type);
      const reference::Fp8Rows q = reference::fp8_rows(x.view());
      expect_nearest(q, test::values_of(x.view()));
      for (std::int64_t r = 0; r < rows; ++r) {
        float amax = 0;
        for (std::int64_t c = 0; c < cols; ++c) amax = std::max(amax, std::fabs(x.view().at(r, c)));
        EXPECT_EQ(q.factors[static_cast<std::size_t>(r)], fp8_row_factor(amax));
      }
    }
}

TEST(Fp8Reference, RowsOfWAreNearest) {
  for (const auto& [rows, cols] : {std::pair{1, 16}, {7, 64}, {40, 208}}) {
    const QuantizedMatrix w = test::random_weights({.rows = rows, .cols = cols}, 5);
    const reference::Fp8Rows q = reference::fp8_weights(w.view());
    expect_nearest(q, test::values_of(w.view()));
    for (std::int64_t r = 0; r < rows; ++r) {
      std::uint8_t largest = 0;
      for (std::int64_t b = 0; b < cols / 16; ++b)
        largest = std::max(largest, w.scales()[r * (cols / 16) + b]);
      EXPECT_EQ(q.factors[static_cast<std::size_t>(r)],
                fp8_row_factor(6 * E4M3{largest}.to_float()));
    }
  }
}

TEST(Fp8Reference, RowWithoutNumbersIsNaNAlone) {
  Matrix x = test::make(test::Fill::gaussian, 4, 16, 3);
  for (std::int64_t c = 0; c < 16; ++c) test::set(x.span(), 0, c, c % 2 ? -0.0f : 0.0f);
  test::set(x.span(), 1, 7, -kInfinity);
  test::set(x.span(), 2, 15, -kNaN);
  const reference::Fp8Rows q = reference::fp8_rows(x.view());
  EXPECT_EQ(q.factors[0], 1);
  EXPECT_EQ(q.codes[0], 0);
  EXPECT_EQ(q.codes[1], 0x80);
  for (const std::size_t r : {1u, 2u}) {
    EXPECT_TRUE(std::isnan(q.factors[r]));
    for (std::size_t c = 0; c < 16; ++c) EXPECT_EQ(q.codes[16 * r + c], 0x7F);
  }
  EXPECT_FALSE(std::isnan(q.factors[3]));
}

}  // namespace nvfp4::fp8_rows_test
