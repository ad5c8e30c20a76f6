// Every backend's bits rest on a multiplication and an addition that round once, and not every C
// library has them.
#include "testing.h"

namespace nvfp4::fused_test {

// The compiler must not know what it is asked.
float fused(float a, float b, float c) {
  const volatile float x = a, y = b, z = c;
  return __builtin_fmaf(x, y, z);
}
double fused(double a, double b, double c) {
  const volatile double x = a, y = b, z = c;
  return __builtin_fma(x, y, z);
}

TEST(FusedMultiplyAdd, KeepsAllDigitsOfTheProduct) {
  const float x = 1 + 0x1p-12f;
  EXPECT_EQ(fused(x, x, -(1 + 0x1p-11f)), 0x1p-24f);
  const double y = 1 + 0x1p-30;
  EXPECT_EQ(fused(y, y, -(1 + 0x1p-29)), 0x1p-60);
}

// (1 + a)(1 - a) = 1 - a^2: the sum is that far below the middle of two numbers, and in twice the
// digits looks like it.
TEST(FusedMultiplyAdd, RoundsOnceNearATie) {
  const float a = 0x1p-15f;
  for (const float sign : {1.0f, -1.0f}) {
    EXPECT_EQ(fused(sign * 0x1p-24f * (1 + a), 1 - a, sign * (1 + 0x1p-23f)),
              sign * (1 + 0x1p-23f));
    EXPECT_EQ(fused(sign * -0x1p-24f * (1 + a), 1 - a, sign * (1 + 0x1p-23f)),
              sign * (1 + 0x1p-23f));
  }
  const double b = 0x1p-30;
  for (const double sign : {1.0, -1.0}) {
    EXPECT_EQ(fused(sign * 0x1p-53 * (1 + b), 1 - b, sign * (1 + 0x1p-52)), sign * (1 + 0x1p-52));
    EXPECT_EQ(fused(sign * -0x1p-53 * (1 + b), 1 - b, sign * (1 + 0x1p-52)), sign * (1 + 0x1p-52));
  }
}

TEST(FusedMultiplyAdd, TiesGoToEven) {
  EXPECT_EQ(fused(0x1p-24f, 1.0f, 1.0f), 1.0f);
  EXPECT_EQ(fused(0x1p-24f, 1.0f, 1 + 0x1p-23f), 1 + 0x1p-22f);
  EXPECT_EQ(fused(0x1p-53, 1.0, 1.0), 1.0);
  EXPECT_EQ(fused(0x1p-53, 1.0, 1 + 0x1p-52), 1 + 0x1p-51);
}

TEST(FusedMultiplyAdd, SmallAndLargeResults) {
  EXPECT_EQ(fused(0x1p-75f, 0x1p-75f, 0.0f), 0.0f) << "half of the smallest: a tie";
  EXPECT_EQ(fused(0x1p-75f, 0x1.8p-75f, 0.0f), 0x1p-149f);
  EXPECT_EQ(fused(0x1p-75f, 0x1p-75f, 0x1p-149f), 0x1p-148f);
  EXPECT_EQ(fused(0x1p-538, 0x1.8p-537, 0.0), 0x1p-1074);
  constexpr float kMax = std::numeric_limits<float>::max();
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(fused(kMax, 2.0f, -kMax), kMax) << "no overflow in between";
  EXPECT_EQ(fused(kMax, 2.0f, 0.0f), kInfinity);
  EXPECT_EQ(fused(kMax, kMax, -kInfinity), -kInfinity);
  EXPECT_EQ(fused(kInfinity, 1.0f, 1.0f), kInfinity);
  EXPECT_TRUE(std::isnan(fused(kInfinity, 0.0f, 1.0f)));
  EXPECT_TRUE(std::isnan(fused(kInfinity, 1.0f, -kInfinity)));
  EXPECT_TRUE(std::signbit(fused(-0.0f, 1.0f, -0.0f)));
  EXPECT_FALSE(std::signbit(fused(1.0f, 1.0f, -1.0f)));
  constexpr double kMaxDouble = std::numeric_limits<double>::max();
  EXPECT_EQ(fused(kMaxDouble, 2.0, -kMaxDouble), kMaxDouble);
}

}  // namespace nvfp4::fused_test
