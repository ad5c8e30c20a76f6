// The exponential of SiLU against the correctly rounded one, over all of FP32.
#include "quantizers/row_math.h"
#include "testing.h"

namespace nvfp4::exponential_test {

/// e^x to 2e-14 for |x| < 200, without branches so that compilers vectorize it.
__attribute__((always_inline)) inline double exact(double x) {
  constexpr double kRound = 0x1.8p52, kLn2 = 0x1.62e42fefa39efp-1;
  const double shifted = x * 0x1.71547652b82fep0 + kRound;
  const double r = x - (shifted - kRound) * kLn2;
  double sum = 1.0;
  for (int i = 13; i > 0; --i) sum = 1.0 + sum * r * (1.0 / i);
  return sum *
         __builtin_bit_cast(double, (__builtin_bit_cast(std::uint64_t, shifted) + 1023) << 52);
}

/// The largest distance to the correctly rounded value in units of the last place, over the FP32
/// values whose bits are first, first + step … below last.
template <std::uint64_t kStep>
__attribute__((always_inline)) inline std::uint32_t worst_of(std::uint64_t first,
                                                             std::uint64_t last) {
  std::uint32_t worst = 0;
  for (std::uint64_t u = first; u < last; u += kStep) {
    const float x = bits_float(static_cast<std::uint32_t>(u));
    const std::uint32_t got = float_bits(exponential(x));
    const std::uint32_t want = float_bits(static_cast<float>(exact(static_cast<double>(x))));
    const std::uint32_t distance = got > want ? got - want : want - got;
    worst = distance > worst ? distance : worst;
  }
  return worst;
}

using Worst = std::uint32_t (*)(std::uint64_t first, std::uint64_t last);

/// With vectors of fused multiply-adds every value takes seconds.
#if defined(__x86_64__) && defined(__OPTIMIZE__) && !defined(__SANITIZE_ADDRESS__)
__attribute__((target("avx2,fma"))) std::uint32_t worst_of_all(std::uint64_t first,
                                                               std::uint64_t last) {
  return worst_of<1>(first, last);
}
const bool kAll = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
#else
std::uint32_t worst_of_all(std::uint64_t, std::uint64_t) { return 0; }
constexpr bool kAll = false;
#endif
std::uint32_t worst_of_some(std::uint64_t first, std::uint64_t last) {
  return worst_of<997>(first, last);
}

std::uint32_t worst_in_parts(Worst worst, std::uint64_t first, std::uint64_t last) {
  const std::size_t threads = std::max(1u, std::thread::hardware_concurrency());
  std::vector<std::uint32_t> found(threads);
  std::vector<std::jthread> pool;
  for (std::size_t t = 0; t < threads; ++t)
    pool.emplace_back([&, t] {
      found[t] =
          worst(first + (last - first) * t / threads, first + (last - first) * (t + 1) / threads);
    });
  pool.clear();
  return *std::max_element(found.begin(), found.end());
}

void expect_two_units_at_most(Worst worst) {
  const std::uint32_t kSign = 0x80000000;
  EXPECT_LE(worst_in_parts(worst, 0, float_bits(kExpHighest) + 1), 2u);
  EXPECT_LE(worst_in_parts(worst, kSign, float_bits(kExpLowest) + 1), 2u);
}

TEST(Exponential, ErrorIsAtMostTwoUlps) {
  for (double x = -110; x < 95; x += 0.00137)  // the yardstick itself
    ASSERT_NEAR(exact(x) / std::exp(x), 1.0, 1e-13) << x;
  expect_two_units_at_most(worst_of_some);
}
TEST(ExponentialSlow, ErrorIsAtMostTwoUlps) {
  if (!kAll) GTEST_SKIP() << "without fused multiply-adds every value takes minutes";
  expect_two_units_at_most(worst_of_all);
}

TEST(Exponential, EndsInZeroAndInfinityAndKeepsNan) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (const float x : {-104.0f, -104.1f, -1e30f, -kInfinity}) EXPECT_EQ(exponential(x), 0.0f) << x;
  for (const float x : {88.73f, 89.0f, 89.1f, 1e30f, kInfinity})
    EXPECT_EQ(exponential(x), kInfinity) << x;
  EXPECT_LT(exponential(88.72f), kInfinity);
  EXPECT_EQ(exponential(0.0f), 1.0f);
  EXPECT_EQ(exponential(-0.0f), 1.0f);
  for (const float nan : {NAN, -NAN, bits_float(0x7F800001), bits_float(0xFFFFFFFF)})
    EXPECT_TRUE(std::isnan(exponential(nan)));
}

}  // namespace nvfp4::exponential_test
