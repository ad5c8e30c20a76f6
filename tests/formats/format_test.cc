#include "nvfp4/format.h"

#include "testing.h"

// Every code; and for conversions from FP32 every boundary ±1 ulp and a dense sweep, against
// searches in double that share nothing with the implementation but the formats' definitions.
namespace nvfp4::format_test {

constexpr double kE2M1[8] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};

double e4m3(int code) {
  const int e = code >> 3 & 15, m = code & 7;
  return e == 0 ? std::ldexp(m, -9) : std::ldexp(8 + m, e - 10);
}

double f16(int code) {
  const int e = code >> 10 & 31, m = code & 1023;
  return e == 0 ? std::ldexp(m, -24) : std::ldexp(1024 + m, e - 25);
}

double bf16(int code) {
  const int e = code >> 7 & 255, m = code & 127;
  return e == 0 ? std::ldexp(m, -133) : std::ldexp(128 + m, e - 134);
}

/// Code of the nearest of value(0..last), ties to the even code, saturating at `last`.
template <class Value>
int nearest(double x, int last, Value value) {
  int low = 0, high = last;
  while (low < high) {  // the largest code whose value is <= x
    const int middle = (low + high + 1) / 2;
    if (value(middle) <= x)
      low = middle;
    else
      high = middle - 1;
  }
  if (low == last) return last;
  const double below = x - value(low), above = value(low + 1) - x;
  return below < above ? low : above < below ? low + 1 : low + low % 2;
}

/// Calls f with each x and its neighbours, and their negatives.
template <class F>
void with_neighbours(float x, F&& f) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (const float v : {std::nextafter(x, -kInfinity), x, std::nextafter(x, kInfinity)}) {
    f(v);
    f(-v);
  }
}

/// Calls f with about four million floats of every magnitude, zeros and infinities included.
template <class F>
void sweep(F&& f) {
  for (std::uint64_t u = 0; u < 0x7F800000u; u += 1021) {
    f(bits_float(static_cast<std::uint32_t>(u)));
    f(bits_float(static_cast<std::uint32_t>(u) | 0x80000000u));
  }
  f(std::numeric_limits<float>::infinity());
  f(-std::numeric_limits<float>::infinity());
}

void expect_e2m1(float x) {
  const int magnitude =
      nearest(std::fabs(static_cast<double>(x)), 7, [](int c) { return kE2M1[c]; });
  ASSERT_EQ(E2M1::from_float(x).bits, magnitude | (std::signbit(x) ? 8 : 0)) << x;
}

TEST(E2M1, DecodesEveryCode) {
  for (int code = 0; code < 16; ++code) {
    const float value = E2M1{static_cast<std::uint8_t>(code)}.to_float();
    EXPECT_EQ(std::fabs(value), kE2M1[code & 7]);
    EXPECT_EQ(std::signbit(value), code >= 8);
  }
}

TEST(E2M1, RoundsToNearestEvenEverywhere) {
  for (int code = 0; code < 7; ++code) {
    with_neighbours(static_cast<float>(kE2M1[code]), expect_e2m1);
    with_neighbours(static_cast<float>((kE2M1[code] + kE2M1[code + 1]) / 2), expect_e2m1);
  }
  with_neighbours(6.0f, expect_e2m1);
  with_neighbours(7.0f, expect_e2m1);
  sweep(expect_e2m1);
}

TEST(E2M1, NanIsPlusSixMinusZeroStays) {
  EXPECT_EQ(E2M1::from_float(NAN).bits, 7);
  EXPECT_EQ(E2M1::from_float(-NAN).bits, 7);
  EXPECT_EQ(E2M1::from_float(-0.0f).bits, 8);
}

void expect_e4m3(float x) {
  const int magnitude = nearest(std::fabs(static_cast<double>(x)), 126, e4m3);
  ASSERT_EQ(E4M3::from_float(x).bits, magnitude | (std::signbit(x) ? 0x80 : 0)) << x;
}

TEST(E4M3, DecodesEveryCode) {
  for (int code = 0; code < 256; ++code) {
    const float value = E4M3{static_cast<std::uint8_t>(code)}.to_float();
    EXPECT_EQ(std::signbit(value), code >= 128);
    if ((code & 0x7F) == 0x7F)
      EXPECT_TRUE(std::isnan(value));
    else
      EXPECT_EQ(std::fabs(value), e4m3(code));
  }
}

TEST(E4M3, RoundsToNearestEvenAndSaturatesEverywhere) {
  for (int code = 0; code < 127; ++code) {
    with_neighbours(static_cast<float>(e4m3(code)), expect_e4m3);
    with_neighbours(static_cast<float>((e4m3(code) + e4m3(code + 1)) / 2), expect_e4m3);
  }
  for (const float x : {464.0f, 480.0f, 512.0f, 1e30f}) with_neighbours(x, expect_e4m3);
  sweep(expect_e4m3);
}

TEST(E4M3, NanIs7FWhateverItsSign) {
  EXPECT_EQ(E4M3::from_float(NAN).bits, 0x7F);
  EXPECT_EQ(E4M3::from_float(-NAN).bits, 0x7F);
  EXPECT_EQ(E4M3::from_float(-0.0f).bits, 0x80);
}

void expect_f16(float x) {
  const double a = std::fabs(static_cast<double>(x));
  const int magnitude = a >= 65520 ? 0x7C00 : nearest(a, 0x7BFF, f16);
  ASSERT_EQ(FP16::from_float(x).bits, magnitude | (std::signbit(x) ? 0x8000 : 0)) << x;
}

TEST(FP16, DecodesEveryCodeAndEncodesItBack) {
  for (int code = 0; code < 0x10000; ++code) {
    const FP16 half{static_cast<std::uint16_t>(code)};
    const float value = half.to_float();
    const int magnitude = code & 0x7FFF;
    EXPECT_EQ(std::signbit(value), code >= 0x8000);
    if (magnitude > 0x7C00) {
      EXPECT_TRUE(std::isnan(value));
      EXPECT_EQ(FP16::from_float(value).bits, 0x7FFF);
    } else {
      EXPECT_EQ(std::fabs(value), magnitude == 0x7C00 ? INFINITY : f16(magnitude));
      EXPECT_EQ(FP16::from_float(value).bits, code);
    }
  }
}

TEST(FP16, RoundsToNearestEvenEverywhere) {
  for (int code = 0; code < 0x7BFF; ++code)
    with_neighbours(static_cast<float>((f16(code) + f16(code + 1)) / 2), expect_f16);
  with_neighbours(65504.0f, expect_f16);
  with_neighbours(65520.0f, expect_f16);
  sweep(expect_f16);
}

void expect_bf16(float x) {
  const double a = std::fabs(static_cast<double>(x));
  const double limit = bf16(0x7F7F) + std::ldexp(1.0, 119);  // half a step past the largest
  const int magnitude = a >= limit ? 0x7F80 : nearest(a, 0x7F7F, bf16);
  ASSERT_EQ(BF16::from_float(x).bits, magnitude | (std::signbit(x) ? 0x8000 : 0)) << x;
}

TEST(BF16, DecodesEveryCodeAndEncodesItBack) {
  for (int code = 0; code < 0x10000; ++code) {
    const float value = BF16{static_cast<std::uint16_t>(code)}.to_float();
    const int magnitude = code & 0x7FFF;
    if (magnitude > 0x7F80) {
      EXPECT_TRUE(std::isnan(value));
      EXPECT_EQ(BF16::from_float(value).bits, 0x7FFF);
    } else {
      EXPECT_EQ(std::fabs(value), magnitude == 0x7F80 ? INFINITY : bf16(magnitude));
      EXPECT_EQ(BF16::from_float(value).bits, code);
    }
  }
}

TEST(BF16, RoundsToNearestEvenEverywhere) {
  for (int code = 0; code < 0x7F7F; ++code)
    with_neighbours(static_cast<float>((bf16(code) + bf16(code + 1)) / 2), expect_bf16);
  with_neighbours(std::numeric_limits<float>::max(), expect_bf16);
  sweep(expect_bf16);
}

// This property makes FP32 accumulation of quantized products exact: docs/numerics.md.
TEST(Formats, CodeTimesScaleIsExact) {
  for (int code = 0; code < 16; ++code)
    for (int scale = 0; scale < 127; ++scale) {
      const float product = E2M1{static_cast<std::uint8_t>(code)}.to_float() *
                            E4M3{static_cast<std::uint8_t>(scale)}.to_float();
      EXPECT_EQ(BF16::from_float(product).to_float(), product);
      EXPECT_EQ(FP16::from_float(product).to_float(), product);
    }
}

// All of it also works at compile time.
static_assert(E2M1::from_float(-5.0f).bits == 0xE);
static_assert(E4M3::from_float(0x1p-10f).bits == 0);
static_assert(BF16::from_float(1.0f).bits == 0x3F80);
static_assert(FP16::from_float(0x1p-24f).bits == 1);

}  // namespace nvfp4::format_test
