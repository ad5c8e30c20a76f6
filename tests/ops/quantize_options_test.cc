// Tests of the options of quantize(), and of values at the limits.
#include <cfloat>

#include "nvfp4/activation.h"
#include "nvfp4/gemm.h"
#include "nvfp4/quantize.h"
#include "test_matrices.h"
#include "testing.h"

namespace nvfp4::quantize_options_test {

/// The message of the E that f throws.
template <class E, class F>
std::string message(F&& f) {
  try {
    f();
  } catch (const E& e) {
    return e.what();
  }
  ADD_FAILURE() << "did not throw the expected error";
  return "";
}

TEST(QuantizeOptions, RefusesOtherThanMultiplesOfTheBlock) {
  const Matrix x(DType::f32, 2, 100);
  EXPECT_NE(message<ShapeError>([&] { quantize(x.view()); }).find("100"), std::string::npos);
  const Matrix y(DType::f32, 24, 16);
  EXPECT_THROW(quantize(y.view(), {.axis = BlockAxis::columns}), ShapeError);
  EXPECT_THROW(
      quantize(Matrix(DType::f32, 2, 48).view(), {.quantizer = Quantizer::mse, .block = 32}),
      ShapeError);
}

TEST(QuantizeOptions, RefusesWrongBlocksWeightsAndGlobals) {
  const Matrix x = test::make(test::Fill::gaussian, 4, 64, 1);
  EXPECT_THROW(quantize(x.view(), {.quantizer = Quantizer::max, .block = 32}), ValueError);
  EXPECT_THROW(quantize(x.view(), {.quantizer = Quantizer::mse, .block = 8}), ValueError);
  std::vector<float> weights(64, 1.0f);
  EXPECT_THROW(quantize(x.view(), {.quantizer = Quantizer::max, .weights = weights}), ValueError);
  weights[7] = -1;
  EXPECT_THROW(quantize(x.view(), {.quantizer = Quantizer::mse, .weights = weights}), ValueError);
  weights.assign(64, 0.0f);
  EXPECT_THROW(quantize(x.view(), {.quantizer = Quantizer::mse, .weights = weights}), ValueError);
  weights.resize(63, 1.0f);
  EXPECT_THROW(quantize(x.view(), {.quantizer = Quantizer::mse, .weights = weights}), ShapeError);
  const GlobalScale globals[2];
  EXPECT_THROW(quantize(x.view(), {.global = globals}), ShapeError);
  const GlobalScale broken{NAN, 1};
  EXPECT_THROW(quantize(x.view(), {.global = {&broken, 1}}), ValueError);
}

TEST(QuantizeOptions, RefusesMemoryThatCannotHoldTheMatrix) {
  float data[32] = {};
  EXPECT_THROW(quantize(MatrixView(nullptr, DType::f32, 2, 16)), ShapeError);
  EXPECT_THROW(quantize(MatrixView(data, DType::f32, 2, 16, 8)), ShapeError);
  for (const std::int64_t backwards : {-1, -2, -16})
    EXPECT_THROW(quantize(MatrixView(data + 16, DType::f32, 2, 16, backwards)), ShapeError);
  EXPECT_THROW(quantize(MatrixView(data, DType::f32, -1, 16)), ShapeError);
  EXPECT_THROW(quantize(MatrixView(reinterpret_cast<char*>(data) + 1, DType::f32, 1, 16)),
               ShapeError);
  MatrixView on_gpu(data, DType::f32, 2, 16);
  on_gpu.device = Device::cuda(1000);  // no machine has it
  EXPECT_THROW(quantize(on_gpu), UnsupportedError);
}

TEST(QuantizeOptions, RefusesAnOutputOfAnotherShape) {
  const Matrix x = test::make(test::Fill::gaussian, 4, 64, 1);
  QuantizedMatrix out({.rows = 4, .cols = 48});
  EXPECT_THROW(quantize_into(x.view(), out.span()), ShapeError);
  Matrix back(DType::f32, 4, 48);
  EXPECT_THROW(dequantize_into(quantize(x.view()).view(), back.span()), ShapeError);
}

TEST(QuantizeOptions, RefusesShapesThatNoMatrixHas) {
  EXPECT_THROW(QuantizedMatrix({.rows = 4, .cols = 16, .block = 0}), ShapeError);
  EXPECT_THROW(QuantizedMatrix({.rows = -16, .cols = -16}), ShapeError);
  EXPECT_THROW(QuantizedMatrix({.rows = 3, .cols = 17}), ShapeError);
  const std::int64_t huge = std::int64_t{1} << 32;
  EXPECT_THROW(Matrix(DType::f32, huge, huge), ShapeError);
  EXPECT_THROW(relayout_scales({}, ScaleLayout::linear, {}, ScaleLayout::linear, huge, huge),
               ShapeError);
}

TEST(QuantizeOptions, AMovedFromMatrixIsEmpty) {
  QuantizedMatrix a({.rows = 4, .cols = 16});
  const QuantizedMatrix b = std::move(a);
  EXPECT_EQ(a.shape(), QuantizedShape{});  // NOLINT: that is the point
  EXPECT_FALSE(a == b);
  Matrix c(DType::f32, 2, 2);
  const Matrix d = std::move(c);
  EXPECT_EQ(c.rows(), 0);  // NOLINT
}

TEST(MatrixData, AnotherElementType_IsAValueError) {
  Matrix f32(DType::f32, 2, 2), bf16(DType::bf16, 2, 2), f16(DType::f16, 2, 2);
  EXPECT_NO_THROW(f32.data<float>());
  EXPECT_NO_THROW(bf16.data<BF16>());
  EXPECT_NO_THROW(f16.data<FP16>());
  EXPECT_NO_THROW(f16.data<std::uint16_t>());
  EXPECT_NO_THROW(bf16.data<std::byte>());
  EXPECT_NO_THROW(bf16.data<void>());
  EXPECT_EQ(
      message<ValueError>([&] { bf16.data<float>(); }),
      "Matrix::data: T is a type of 4 bytes, must be BF16 for a matrix of bf16, or a type of 2 "
      "bytes or 1 byte");
  EXPECT_THROW(f16.data<BF16>(), ValueError);
  EXPECT_THROW(bf16.data<FP16>(), ValueError);
  EXPECT_THROW(f32.data<double>(), ValueError);
  const Matrix& fixed = f32;
  EXPECT_THROW(fixed.data<std::uint16_t>(), ValueError);
}

TEST(QuantizeOptions, CheckFiniteNamesTheFirstOffendingIndex) {
  for (const float bad : {NAN, INFINITY, -INFINITY}) {
    Matrix x = test::make(test::Fill::gaussian, 5, 64, 1);
    test::set(x.span(), 3, 17, bad);
    test::set(x.span(), 4, 2, bad);
    const std::string what =
        message<ValueError>([&] { quantize(x.view(), {.check_finite = true}); });
    EXPECT_THAT(what, HasSubstr("x[3, 17]"));
    EXPECT_NO_THROW(quantize(x.view()));
  }
  EXPECT_NO_THROW(quantize(test::make(test::Fill::huge, 5, 64, 1).view(), {.check_finite = true}));
}

TEST(QuantizeOptions, NamesOfQuantizersGoThereAndBack) {
  for (const std::string& name : quantizer_names())
    EXPECT_EQ(quantizer_name(quantizer_from_name(name)), name);
  EXPECT_NE(message<ValueError>([] { quantizer_from_name("best"); }).find("four_over_six"),
            std::string::npos);
}

// The outcomes that quantize.h documents, on the bytes.
TEST(QuantizeOptions, DefaultQuantizer_Weights_IsMse) {
  const Matrix w = test::make(test::Fill::student, 5, 64, 3);
  const QuantizedMatrix want = quantize(w.view(), {.quantizer = Quantizer::mse});
  EXPECT_TRUE(quantize(w.view()) == want);
  EXPECT_TRUE(unpack_weights(pack_weights(w.view())) == want);
  EXPECT_FALSE(want == quantize(w.view(), {.quantizer = Quantizer::max}));
}

TEST(QuantizeOptions, DefaultQuantizer_Activations_IsMax) {
  const Matrix x = test::make(test::Fill::student, 5, 64, 3);
  const QuantizeOptions max{.quantizer = Quantizer::max, .scope = GlobalScope::vector};
  const QuantizedMatrix want = quantize(x.view(), max);
  EXPECT_TRUE(to_device(quantize_activation(x.view()).view(), {}) == want);
  QuantizedMatrix grouped(want.shape());
  const std::int32_t start[] = {0}, end[] = {5};
  quantize_grouped_into(x.view(), start, end, grouped.span(), {.scope = GlobalScope::vector});
  EXPECT_TRUE(grouped == want);
  EXPECT_TRUE(to_device(swiglu_quantize(x.view()).view(), {}) ==
              to_device(swiglu_quantize(x.view(), {}, max).view(), {}));
}

TEST(QuantizeValues, ZeroBlockKeepsZerosAndSigns) {
  Matrix x(DType::f32, 1, 32);
  test::set(x.span(), 0, 3, -0.0f);
  test::set(x.span(), 0, 20, 1.0f);  // so that the tensor is not all zero
  for (const auto& [quantizer, scale] :
       {std::pair{Quantizer::max, 0}, {Quantizer::four_over_six, 0}, {Quantizer::mse, 1}}) {
    const QuantizedMatrix q = quantize(x.view(), {.quantizer = quantizer});
    EXPECT_EQ(q.scales()[0], scale);
    for (int i = 0; i < 8; ++i) EXPECT_EQ(q.codes()[i], i == 1 ? 0x80 : 0x00);
  }
}

TEST(QuantizeValues, AnAllZeroTensorHasGlobalScaleOne) {
  const QuantizedMatrix q = quantize(Matrix(DType::bf16, 2, 16).view());
  EXPECT_EQ(q.global_scale()[0], 1.0f);
}

TEST(QuantizeValues, NanBecomesPlusSixOutsideTheScale) {
  Matrix x(DType::f32, 1, 16);
  test::set(x.span(), 0, 0, 2688.0f);
  test::set(x.span(), 0, 1, -NAN);
  const QuantizedMatrix q = quantize(x.view(), {.quantizer = Quantizer::max});
  EXPECT_EQ(q.global_scale()[0], 1.0f);
  EXPECT_EQ(q.scales()[0], E4M3::kMaxBits);
  EXPECT_EQ(q.codes()[0], 0x77);
}

TEST(QuantizeValues, InfinitySaturatesUnderGlobalScaleOne) {
  Matrix x(DType::f32, 1, 32);
  test::set(x.span(), 0, 0, -INFINITY);
  test::set(x.span(), 0, 16, 6.0f);
  const QuantizedMatrix q = quantize(x.view(), {.quantizer = Quantizer::max});
  EXPECT_EQ(q.global_scale()[0], 1.0f);
  EXPECT_EQ(q.codes()[0], 0x0F);
  EXPECT_EQ(q.scales()[0], E4M3::kMaxBits);
  EXPECT_EQ(q.scales()[1], 0x38);
}

float there_and_back(float x, Quantizer quantizer) {
  Matrix m(DType::f32, 1, 16);
  test::set(m.span(), 0, 5, x);
  return dequantize(quantize(m.view(), {.quantizer = quantizer}).view()).view().at(0, 5);
}

TEST(QuantizeValues, ThirtySixOrdersOfMagnitudeSurvive) {
  for (const float x : {FLT_MAX, 1e37f, 1e-9f, 1e-35f})
    for (const Quantizer q : {Quantizer::max, Quantizer::four_over_six, Quantizer::mse})
      EXPECT_NEAR(there_and_back(x, q) / x, 1.0, 0.07) << x << " " << quantizer_name(q);
}

// There the divisor would overflow; it stops at FLT_MAX, and accuracy fades with the last bits.
TEST(QuantizeValues, TiniestFloatsFadeAndNeverGrow) {
  for (const float x : {FLT_MIN, 1e-39f, 1024 * FLT_TRUE_MIN, FLT_TRUE_MIN})
    for (const Quantizer q : {Quantizer::max, Quantizer::four_over_six, Quantizer::mse}) {
      EXPECT_GE(there_and_back(x, q), 0.0f) << x << " " << quantizer_name(q);
      EXPECT_LE(there_and_back(x, q), 1.1f * x) << x << " " << quantizer_name(q);
    }
}

TEST(GlobalScale, KeepsBothSensesWithoutReciprocatingTwice) {
  const GlobalScale g = GlobalScale::from_amax(3.7f, Quantizer::max);
  EXPECT_EQ(g.multiplier, 3.7f / 2688);
  EXPECT_EQ(g.divisor, 2688 / 3.7f);
  EXPECT_EQ(GlobalScale::from_amax(3.7f, Quantizer::mse).multiplier, 3.7f / 1536);
  EXPECT_EQ(GlobalScale::from_multiplier(0.3f).divisor, 1 / 0.3f);
  EXPECT_EQ(GlobalScale::from_divisor(0.3f).multiplier, 1 / 0.3f);
  for (const float bad : {0.0f, -1.0f, NAN, INFINITY}) {
    EXPECT_THROW(GlobalScale::from_multiplier(bad), ValueError);
    EXPECT_THROW(GlobalScale::from_divisor(bad), ValueError);
  }
  for (const float far : {1e-40f, 1e37f})
    EXPECT_THROW(GlobalScale::from_multiplier(far), ValueError);
  EXPECT_THROW(GlobalScale::from_divisor(1e-39f), ValueError);
  EXPECT_THROW(GlobalScale::from_amax(NAN, Quantizer::max), ValueError);
}

/// Sets an environment variable for the life of the object.
class Environment {
 public:
  Environment(const char* name, const char* value) : name_(name) { setenv(name, value, 1); }
  ~Environment() { unsetenv(name_); }

 private:
  const char* name_;
};

TEST(Backends, EnvironmentAndOptionSelect) {
  EXPECT_EQ(select_backend("reference").name, "reference");
  {
    const Environment env("NVFP4_BACKEND", "reference");
    EXPECT_EQ(select_backend().name, "reference");
    EXPECT_EQ(select_backend("cpu").name, "cpu");  // the option wins
  }
  const Environment env("NVFP4_BACKEND", "abacus");
  EXPECT_NE(message<ValueError>([] { select_backend(); }).find("abacus"), std::string::npos);
  EXPECT_THROW(select_backend("cuda"), ValueError);
}

TEST(Backends, OneThatCannotRunHereSaysWhy) {
  for (const BackendInfo& b : backends()) {
    EXPECT_EQ(b.available, b.reason.empty()) << b.name;
    if (b.available) continue;
    const std::string what = message<UnsupportedError>([&] { select_backend(b.name); });
    EXPECT_THAT(what, HasSubstr(b.reason));
  }
}

TEST(Threads, SetsAndResets) {
  set_threads(3);
  EXPECT_EQ(threads(), 3);
  EXPECT_THROW(set_threads(-1), ValueError);
  {
    const Environment env("NVFP4_THREADS", "2");
    set_threads(0);
    EXPECT_EQ(threads(), 2);
  }
  const Environment env("NVFP4_THREADS", "two");
  EXPECT_THROW(set_threads(0), ValueError);
  unsetenv("NVFP4_THREADS");
  set_threads(0);
  EXPECT_GE(threads(), 1);
}

}  // namespace nvfp4::quantize_options_test
