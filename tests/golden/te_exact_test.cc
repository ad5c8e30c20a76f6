// Vectors of the TransformerEngine recipe, worked out from its formulas independently of this code.
#include "nvfp4/quantize.h"
#include "test_matrices.h"
#include "testing.h"

namespace nvfp4::te_exact_test {

struct Vector {
  const char* name;
  float amax;
  std::vector<float> x;
  int scale;
  std::vector<int> bytes;  // in memory order: the first element in the low nibble
};

std::vector<float> from_bf16(const std::vector<std::uint16_t>& bits) {
  std::vector<float> x;
  for (const std::uint16_t b : bits) x.push_back(BF16{b}.to_float());
  return x;
}

std::vector<Vector> vectors() {
  std::vector<float> ramp, subnormal, underflow;
  for (int i = 0; i < 16; ++i) {
    ramp.push_back((static_cast<float>(i) - 7.5f) / 4);
    subnormal.push_back(BF16::from_float(0.0005f * static_cast<float>(i + 1)).to_float());
    underflow.push_back((i < 8 ? 0.005f : 0.0f) * (i % 2 ? -1.0f : 1.0f));
  }
  return {
      {"ramp", 1.875f, ramp, 0x7E, {0xFF, 0xEE, 0xCD, 0x9A, 0x21, 0x54, 0x66, 0x77}},
      {"ties",
       2688,
       {.25f, .75f, 1.25f, 1.75f, 2.5f, 3.5f, 5, 6, -.25f, -.75f, -1.25f, -1.75f, -2.5f, -3.5f, -5,
        -0.f},
       0x38,
       {0x20, 0x42, 0x64, 0x76, 0xA8, 0xCA, 0xEC, 0x8E}},
      {"half-step traps",
       2688,
       {2.5f, 2.515625f, 2.625f, 2.734375f, 2.75f, 3.484375f, 3.5f, 3.625f, 3.734375f, 3.75f, 5,
        5.03125f, 5.125f, 5.25f, 5.28125f, 6},
       0x38,
       {0x54, 0x55, 0x55, 0x66, 0x66, 0x76, 0x77, 0x77}},
      {"bf16 bits",
       17.5f,
       from_bf16({0xC0C0, 0xC0A3, 0xC086, 0xC18C, 0xC01A, 0xBFC0, 0xBF1A, 0x3E9A, 0x3F9A, 0x4006,
                  0x4040, 0x407A, 0x409A, 0x40B6, 0x40D3, 0x40F0}),
       0x7E,
       {0xBC, 0xFB, 0x9A, 0x08, 0x11, 0x32, 0x43, 0x54}},
      {"subnormal scale", 2688, subnormal, 0x01, {0x11, 0x22, 0x33, 0x44, 0x54, 0x55, 0x65, 0x66}},
      {"underflow", 2688, underflow, 0x00, {0xF7, 0xF7, 0xF7, 0xF7, 0x80, 0x80, 0x80, 0x80}},
  };
}

class TeExact : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Backends, TeExact, testing::ValuesIn(test::available_backends()),
                         [](const auto& info) { return test::identifier(info.param); });

TEST_P(TeExact, GoldenVectors) {
  for (const Vector& v : vectors()) {
    const GlobalScale global = GlobalScale::from_amax(v.amax, Quantizer::max);
    Matrix x(DType::f32, 1, 16);
    for (std::int64_t i = 0; i < 16; ++i)
      test::set(x.span(), 0, i, v.x[static_cast<std::size_t>(i)]);
    const QuantizedMatrix q = quantize(
        x.view(), {.quantizer = Quantizer::max, .global = {&global, 1}, .backend = GetParam()});
    EXPECT_EQ(q.scales()[0], v.scale) << v.name;
    EXPECT_EQ(std::vector<int>(q.codes(), q.codes() + 8), v.bytes) << v.name;
  }
}

TEST_P(TeExact, TheRampsFirstElementDecodesToItself) {
  const Vector v = vectors()[0];
  Matrix x(DType::f32, 1, 16);
  for (std::int64_t i = 0; i < 16; ++i) test::set(x.span(), 0, i, v.x[static_cast<std::size_t>(i)]);
  const QuantizedMatrix q =
      quantize(x.view(), {.quantizer = Quantizer::max, .backend = GetParam()});
  EXPECT_EQ(dequantize(q.view(), DType::f32, GetParam()).view().at(0, 0), -1.875f);
}

}  // namespace nvfp4::te_exact_test
