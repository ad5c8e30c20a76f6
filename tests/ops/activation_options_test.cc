// Tests of the options of fused operations.
#include "nvfp4/activation.h"
#include "test_matrices.h"
#include "testing.h"

namespace nvfp4::activation_options_test {

const Device kNoDevice = Device::cuda(999);

struct Norm {
  Matrix x = test::make(test::Fill::gaussian, 3, 64, 1, DType::bf16);
  std::vector<float> weight = std::vector<float>(64, 1.0f);
  Matrix y{DType::f32, 3, 64};
  QuantizedMatrix out{{.rows = 3, .cols = 64}};

  void run(const RmsNormOptions& norm = {}, const QuantizeOptions& options = {}) {
    rms_norm_quantize_into(x.view(), weight, out.span(), norm, options);
  }
};

TEST(ActivationOptions, NormRefusesShapesThatDoNotFit) {
  Norm n;
  EXPECT_NO_THROW(n.run());
  n.weight.resize(63);
  EXPECT_THROW(n.run(), ShapeError);
  EXPECT_THROW(rms_norm_into(n.x.view(), n.weight, n.y.span()), ShapeError);
  Norm odd;
  odd.x = Matrix(DType::bf16, 3, 60);
  odd.weight.resize(60);
  EXPECT_THROW(odd.run(), ShapeError);
  EXPECT_THROW(rms_norm_into(odd.x.view(), odd.weight, Matrix(DType::f32, 3, 60).span()),
               ShapeError);
  Norm other;
  other.out = QuantizedMatrix({.rows = 3, .cols = 48});
  EXPECT_THROW(other.run(), ShapeError);
  EXPECT_THROW(rms_norm_into(other.x.view(), other.weight, Matrix(DType::f32, 2, 64).span()),
               ShapeError);
  EXPECT_THROW(other.run({}, {.scope = GlobalScope::vector}), ShapeError);
}

TEST(ActivationOptions, NormRefusesPointersThatCannotBe) {
  Norm n;
  float wide[66] = {};
  const auto* odd = reinterpret_cast<const float*>(reinterpret_cast<const char*>(wide) + 1);
  EXPECT_THROW(rms_norm_quantize_into(n.x.view(), {odd, 64}, n.out.span()), ShapeError);
  EXPECT_THROW(n.run({.rstd = const_cast<float*>(odd)}), ShapeError);
  MatrixView null = n.x.view();
  null.data = nullptr;
  EXPECT_THROW(rms_norm_quantize_into(null, n.weight, n.out.span()), ShapeError);
  QuantizedSpan out = n.out.span();
  out.codes = nullptr;
  EXPECT_THROW(rms_norm_quantize_into(n.x.view(), n.weight, out), ShapeError);
}

TEST(ActivationOptions, NormRefusesValuesOutsideTheirDomain) {
  Norm n;
  for (const float eps : {-1e-6f, NAN, INFINITY}) EXPECT_THROW(n.run({.eps = eps}), ValueError);
  EXPECT_NO_THROW(n.run({.eps = 0}));
  Matrix residual(DType::bf16, 3, 64), narrow(DType::bf16, 3, 48);
  EXPECT_THROW(n.run({.residual = residual.view()}), ValueError);
  EXPECT_THROW(n.run({.residual_out = residual.span()}), ValueError);
  EXPECT_THROW(n.run({.residual = narrow.view(), .residual_out = residual.span()}), ShapeError);
  EXPECT_THROW(n.run({.residual = residual.view(), .residual_out = narrow.span()}), ShapeError);
  EXPECT_NO_THROW(n.run({.residual = residual.view(), .residual_out = residual.span()}));
  MatrixSpan elsewhere = residual.span();
  elsewhere.device = kNoDevice;
  EXPECT_THROW(n.run({.residual = residual.view(), .residual_out = elsewhere}), DeviceError);
}

TEST(ActivationOptions, WhatDoesNotApplyIsRefused) {
  Norm n;
  EXPECT_THROW(n.run({}, {.axis = BlockAxis::columns}), ValueError);
  EXPECT_THROW(n.run({}, {.quantizer = Quantizer::mse, .weights = n.weight}), ValueError);
  const Matrix hessian(DType::f32, 64, 16);
  EXPECT_THROW(n.run({}, {.quantizer = Quantizer::mse, .hessian = hessian.view()}), ValueError);
  EXPECT_THROW(n.run({}, {.check_finite = true}), ValueError);
  EXPECT_THROW(n.run({}, {.block = 32}), ValueError);  // max has blocks of 16 only
  n.out = QuantizedMatrix({.rows = 3, .cols = 64, .block = 32});
  EXPECT_NO_THROW(n.run({}, {.quantizer = Quantizer::mse, .block = 32}));
  EXPECT_THROW(quantize_activation(n.x.view(), {.axis = BlockAxis::columns}), ValueError);
}

TEST(ActivationOptions, GlobalScalesMustFitScopeAndDevice) {
  Norm n;
  const std::array<GlobalScale, 3> three;
  EXPECT_THROW(n.run({}, {.global = three}), ShapeError);
  n.out = QuantizedMatrix({.rows = 3, .cols = 64, .scope = GlobalScope::vector});
  EXPECT_NO_THROW(n.run({}, {.scope = GlobalScope::vector, .global = three}));
  EXPECT_THROW(n.run({}, {.scope = GlobalScope::vector, .global = {three.data(), 1}}), ShapeError);
  EXPECT_THROW(n.run({}, {.scope = GlobalScope::vector, .global = {three.data(), 3, kNoDevice}}),
               DeviceError);
  std::array<GlobalScale, 3> broken;
  broken[1].divisor = -1;
  EXPECT_THROW(n.run({}, {.scope = GlobalScope::vector, .global = broken}), ValueError);
}

TEST(ActivationOptions, ADeviceThatIsNotThereSaysSo) {
  Norm n;
  MatrixView x = n.x.view();
  x.device = kNoDevice;
  QuantizedSpan out = n.out.span();
  EXPECT_THROW(rms_norm_quantize_into(x, n.weight, out), DeviceError);  // out is on the CPU
  out.device = kNoDevice;
  EXPECT_THROW(rms_norm_quantize_into(x, n.weight, out), UnsupportedError);
  EXPECT_THROW(amax(x), UnsupportedError);
  float largest = 0;
  EXPECT_THROW(amax_into(x, &largest), UnsupportedError);
  GlobalScale global;
  EXPECT_THROW(global_scales_into(&largest, &global, 1, Quantizer::max, kNoDevice),
               UnsupportedError);
}

TEST(ActivationOptions, GpuPointersAreAlignedToSixteenBytes) {
  Norm n;
  MatrixView x = n.x.view();
  x.device = kNoDevice;
  x.data = static_cast<const char*>(x.data) + 2;
  QuantizedSpan out = n.out.span();
  out.device = kNoDevice;
  EXPECT_THROW(rms_norm_quantize_into(x, n.weight, out), ShapeError);
  EXPECT_THROW(quantize_into(x, out), ShapeError);
  x.data = n.x.view().data;
  out.codes += 8;
  EXPECT_THROW(quantize_into(x, out), ShapeError);
}

TEST(ActivationOptions, MixRefusesStreamsThatDoNotFit) {
  const Matrix streams(DType::bf16, 3, 4 * 64), mix(DType::f32, 3, 4);
  const std::vector<float> weight(64, 1.0f);
  QuantizedMatrix out({.rows = 3, .cols = 64});
  Matrix residual(DType::f32, 3, 64);
  const auto run = [&](const MatrixView& x, const MatrixView& m, const RmsNormOptions& norm = {}) {
    mix_rms_norm_quantize_into(x, m, weight, out.span(), norm);
  };
  EXPECT_NO_THROW(run(streams.view(), mix.view()));
  EXPECT_THROW(run(streams.view(), Matrix(DType::f32, 3, 5).view()), ShapeError);
  EXPECT_THROW(run(streams.view(), Matrix(DType::f32, 3, 3).view()), ShapeError);
  EXPECT_THROW(run(streams.view(), Matrix(DType::f32, 3, 0).view()), ShapeError);
  EXPECT_THROW(run(streams.view(), Matrix(DType::f32, 2, 4).view()), ShapeError);
  EXPECT_THROW(run(streams.view(), Matrix(DType::bf16, 3, 4).view()), ValueError);
  EXPECT_THROW(run(streams.view(), mix.view(),
                   {.residual = residual.view(), .residual_out = residual.span()}),
               ValueError);
  EXPECT_THROW(mix_streams_into(streams.view(), mix.view(), Matrix(DType::f32, 3, 48).span()),
               ShapeError);
}

TEST(ActivationOptions, SwigluRefusesWrongInterleavesAndLimits) {
  const Matrix gate_up(DType::bf16, 3, 2 * 48);
  QuantizedMatrix out({.rows = 3, .cols = 48});
  const auto run = [&](const SwigluOptions& swiglu) {
    swiglu_quantize_into(gate_up.view(), out.span(), swiglu);
  };
  for (const int interleave : {0, 1, 2, 4, 8, 16}) EXPECT_NO_THROW(run({.interleave = interleave}));
  for (const int interleave : {-8, 3, 24})
    EXPECT_THROW(run({.interleave = interleave}), ValueError);
  EXPECT_THROW(run({.interleave = 32}), ShapeError);
  for (const float limit : {0.0f, -1.0f, NAN}) EXPECT_THROW(run({.limit = limit}), ValueError);
  EXPECT_THROW(swiglu_quantize(Matrix(DType::bf16, 3, 97).view()), ShapeError);
  EXPECT_THROW(swiglu_quantize(Matrix(DType::bf16, 3, 2 * 40).view()), ShapeError);
}

TEST(ActivationOptions, GroupsNeedAsManyStartsAsEnds) {
  const Matrix x(DType::bf16, 3, 64);
  QuantizedMatrix out({.rows = 3, .cols = 64});
  const std::int32_t starts[] = {0, 2}, ends[] = {1, 3};
  EXPECT_NO_THROW(quantize_grouped_into(x.view(), starts, ends, out.span()));
  EXPECT_THROW(quantize_grouped_into(x.view(), starts, {ends, 1}, out.span()), ShapeError);
  EXPECT_THROW(quantize_grouped_into(x.view(), {}, {}, out.span()), ShapeError);
}

TEST(ActivationOptions, StagingRefusesRoutingThatDoesNotFit) {
  const Matrix x(DType::bf16, 2, 64);
  QuantizedMatrix out({.rows = 2, .cols = 64, .scope = GlobalScope::vector});
  const std::int32_t ids[8] = {};
  const float weights[8] = {};
  std::int64_t staged_ids[8];
  float staged_weights[8];
  const Routing good{
      .ids = ids, .id_stride = 4, .weights = weights, .weight_stride = 4, .rows = 2, .top_k = 4};
  const StagedRouting to{staged_ids, 4, staged_weights, 4};
  const QuantizeOptions each{.scope = GlobalScope::vector};
  const auto run = [&](auto&& change, const QuantizeOptions& options) {
    Routing routing = good;
    StagedRouting staged = to;
    change(routing, staged);
    stage_moe_into(x.view(), routing, out.span(), staged, options);
  };
  EXPECT_NO_THROW(run([](Routing&, StagedRouting&) {}, each));
  EXPECT_THROW(run([](Routing& r, StagedRouting&) { r.rows = 3; }, each), ShapeError);
  EXPECT_THROW(run([](Routing& r, StagedRouting&) { r.top_k = 5; }, each), ShapeError);
  EXPECT_THROW(run([](Routing& r, StagedRouting&) { r.top_k = -1; }, each), ShapeError);
  EXPECT_THROW(run([](Routing& r, StagedRouting&) { r.ids = nullptr; }, each), ShapeError);
  EXPECT_THROW(run([](Routing&, StagedRouting& s) { s.weights = nullptr; }, each), ShapeError);
  EXPECT_THROW(run([](Routing&, StagedRouting& s) { s.id_stride = 3; }, each), ShapeError);
  EXPECT_THROW(
      run([](Routing& r, StagedRouting&) { r.ids = static_cast<const char*>(r.ids) + 1; }, each),
      ShapeError);
  // The global scale of a tensor would have to be measured first.
  EXPECT_THROW(run([](Routing&, StagedRouting&) {}, {}), ValueError);
}

TEST(ActivationOptions, TheHessianIsForMseAlone) {
  const Matrix x = test::make(test::Fill::gaussian, 4, 64, 1);
  Matrix h(DType::f32, 64, 16);
  gram_into(x.view(), h.span());
  EXPECT_NO_THROW(quantize(x.view(), {.quantizer = Quantizer::mse, .hessian = h.view()}));
  EXPECT_THROW(quantize(x.view(), {.quantizer = Quantizer::max, .hessian = h.view()}), ValueError);
  const std::vector<float> weights(64, 1.0f);
  EXPECT_THROW(
      quantize(x.view(), {.quantizer = Quantizer::mse, .weights = weights, .hessian = h.view()}),
      ValueError);
  const auto refused = [&](const Matrix& wrong) {
    quantize(x.view(), {.quantizer = Quantizer::mse, .hessian = wrong.view()});
  };
  EXPECT_THROW(refused(Matrix(DType::f32, 48, 16)), ShapeError);
  EXPECT_THROW(refused(Matrix(DType::f32, 64, 32)), ShapeError);
  EXPECT_THROW(refused(Matrix(DType::bf16, 64, 16)), ValueError);
}

TEST(ActivationOptions, GramRefusesShapesThatDoNotFit) {
  const Matrix x(DType::bf16, 5, 64);
  EXPECT_THROW(gram_into(x.view(), Matrix(DType::f32, 64, 8).span()), ShapeError);
  EXPECT_THROW(gram_into(x.view(), Matrix(DType::f32, 48, 16).span()), ShapeError);
  EXPECT_THROW(gram_into(x.view(), Matrix(DType::bf16, 64, 16).span()), ValueError);
  EXPECT_THROW(gram_into(Matrix(DType::bf16, 5, 48).view(), Matrix(DType::f32, 48, 32).span()),
               ShapeError);
  Matrix out(DType::f32, 64, 16);
  MatrixSpan elsewhere = out.span();
  elsewhere.device = kNoDevice;
  EXPECT_THROW(gram_into(x.view(), elsewhere), DeviceError);
}

TEST(ActivationOptions, AmaxesAndGlobalScalesNeedMemory) {
  const Matrix x(DType::bf16, 5, 64);
  EXPECT_THROW(amax_into(x.view(), nullptr), ShapeError);
  EXPECT_NO_THROW(amax_into(Matrix(DType::bf16, 0, 64).view(), nullptr, GlobalScope::vector));
  const float largest[] = {NAN, -1.0f};
  GlobalScale globals[2];
  global_scales_into(largest, globals, 2, Quantizer::max);
  for (const GlobalScale& global : globals) EXPECT_EQ(global.multiplier, 1.0f);  // as for zeros
  EXPECT_THROW(global_scales_into(largest, nullptr, 1, Quantizer::max), ShapeError);
  EXPECT_THROW(global_scales_into(largest, globals, -1, Quantizer::max), ShapeError);
}

TEST(QuantizedActivation, IsSharedAndKeepsRstd) {
  const Norm n;
  std::vector<float> rstd(3);
  const QuantizedActivation a = rms_norm_quantize(n.x.view(), n.weight, {.rstd = rstd.data()});
  const QuantizedActivation b = a;  // NOLINT: a copy is the point
  EXPECT_EQ(a.view().codes, b.view().codes);
  EXPECT_EQ(b.rows(), 3);
  EXPECT_EQ(b.cols(), 64);
  EXPECT_EQ(b.view().shape.scope, GlobalScope::vector);
  ASSERT_EQ(b.rstd().rows, 3);
  for (std::int64_t r = 0; r < 3; ++r) {
    EXPECT_EQ(b.rstd().at(r, 0), rstd[static_cast<std::size_t>(r)]);
    EXPECT_GT(b.rstd().at(r, 0), 0.5f);
  }
  EXPECT_EQ(QuantizedActivation().rows(), 0);
  EXPECT_EQ(swiglu_quantize(n.x.view()).cols(), 32);
  EXPECT_EQ(quantize_activation(n.x.view()).rstd().rows, 0);
}

}  // namespace nvfp4::activation_options_test
