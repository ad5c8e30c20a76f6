// Packing, and what a GEMM refuses.
#include "backends/host/gemm_loop.h"
#include "gemm_cases.h"
#include "testing.h"

namespace nvfp4::gemm_options_test {

using test::activations;
using test::Fill;
using test::make;
using test::weights;

TEST(PackWeights, UnpackingGivesBackEveryBit) {
  for (const std::int64_t n : {1, 15, 16, 17, 33, 128})
    for (const std::int64_t k : {0, 16, 48, 64, 80, 112, 1024})
      for (const auto scope : {GlobalScope::tensor, GlobalScope::vector}) {
        const QuantizedMatrix q = weights(n, k, static_cast<std::uint64_t>(n + k), scope);
        const PackedWeights packed = pack_weights(q.view());
        EXPECT_TRUE(unpack_weights(packed) == q) << n << " x " << k;
      }
}

TEST(PackWeights, TakesEveryLayoutAndTheTransposedMatrix) {
  const std::int64_t n = 37, k = 144;
  const Matrix w = make(Fill::gaussian, n, k, 1);
  Matrix transposed(DType::f32, k, n);
  for (std::int64_t r = 0; r < n; ++r)
    for (std::int64_t c = 0; c < k; ++c) test::set(transposed.span(), c, r, w.view().at(r, c));
  const QuantizedMatrix want = quantize(w.view(), {.scope = GlobalScope::vector});
  for (const ScaleLayout layout :
       {ScaleLayout::linear, ScaleLayout::tiled_128x4, ScaleLayout::packed_mn_major}) {
    const QuantizeOptions rows{.layout = layout, .scope = GlobalScope::vector};
    EXPECT_TRUE(unpack_weights(pack_weights(w.view(), rows)) == want);
    QuantizeOptions columns = rows;
    columns.axis = BlockAxis::columns;
    EXPECT_TRUE(unpack_weights(pack_weights(transposed.view(), columns)) == want);
  }
}

TEST(PackWeights, TakesNoMoreRoomThanTheCheckpoint) {
  for (const auto& [n, k] : {std::pair<std::int64_t, std::int64_t>{4096, 7168},
                             {1536, 8192},
                             {2048, 7168},
                             {7168, 2048},
                             {129280, 64}}) {
    const PackedShape w{.rows = n, .cols = k};
    EXPECT_LE(static_cast<double>(w.bytes()), 1.02 * static_cast<double>(n * k / 2 + n * k / 16));
  }
}

TEST(PackWeights, MovesAndLeavesNothingBehind) {
  PackedWeights a = pack_weights(weights(20, 32, 1).view());
  const PackedWeights copied = a, b = std::move(a);
  EXPECT_TRUE(a.empty());  // NOLINT: what a moved-from value is, is specified here
  EXPECT_EQ(a.rows(), 0);
  EXPECT_EQ(b.rows(), 20);
  EXPECT_EQ(copied.memory().data(), b.memory().data());
  EXPECT_THROW(test::product(make(Fill::gaussian, 1, 32, 1).view(), a), ShapeError);
}

TEST(PackWeights, RefusesScalesThatAreNaNOrNegative) {
  for (const int bad : {0x7F, 0x80, 0xFF}) {
    QuantizedMatrix q = weights(18, 64, 1);
    q.scales()[17 * 4 + 3] = static_cast<std::uint8_t>(bad);
    EXPECT_THROW(pack_weights(q.view()), ValueError) << bad;
  }
}

TEST(PackWeights, RefusesOtherShapes) {
  EXPECT_THROW(pack_weights(QuantizedMatrix({.rows = 0, .cols = 32}).view()), ShapeError);
  EXPECT_THROW(pack_weights(QuantizedMatrix({.rows = 4, .cols = 32, .block = 32}).view()),
               ShapeError);
  EXPECT_THROW(PackedWeights({.rows = 4, .cols = 24}, {}), ShapeError);
  EXPECT_THROW(PackedWeights({.rows = std::int64_t{1} << 40, .cols = std::int64_t{1} << 40}, {}),
               ShapeError);
  QuantizedMatrix q = weights(4, 32, 1);
  QuantizedView null = q.view();
  null.scales = nullptr;
  EXPECT_THROW(pack_weights(null), ShapeError);
}

class GemmErrors : public testing::Test {
 protected:
  std::int64_t m = 3, n = 20, k = 64;
  QuantizedMatrix q = activations(m, k, 1);
  Matrix x = make(Fill::gaussian, m, k, 1);
  PackedWeights w = pack_weights(weights(n, k, 1).view());
  Matrix out{DType::f32, m, n};
};

TEST_F(GemmErrors, Shapes) {
  const Matrix other = make(Fill::gaussian, m, k + 16, 1), odd = make(Fill::gaussian, m, k + 8, 1);
  EXPECT_THROW(test::product_into(other.view(), w, out.span()), ShapeError);
  EXPECT_THROW(test::product_into(odd.view(), w, out.span()), ShapeError);
  EXPECT_THROW(test::product_into(activations(m, k + 16, 1).view(), w, out.span()), ShapeError);
  Matrix tall(DType::f32, m + 1, n), wide(DType::f32, m, n + 1);
  EXPECT_THROW(test::product_into(x.view(), w, tall.span()), ShapeError);
  EXPECT_THROW(test::product_into(q.view(), w, wide.span()), ShapeError);
  const std::vector<float> bias(static_cast<std::size_t>(n) + 1);
  EXPECT_THROW(test::product_into(x.view(), w, out.span(), {.bias = bias}), ShapeError);
  EXPECT_THROW(test::product_into(x.view(), PackedWeights(), out.span()), ShapeError);
}

TEST_F(GemmErrors, PointersAndStrides) {
  MatrixSpan null = out.span();
  null.data = nullptr;
  EXPECT_THROW(test::product_into(x.view(), w, null), ShapeError);
  MatrixView view = x.view();
  view.data = static_cast<const char*>(view.data) + 1;
  EXPECT_THROW(test::product_into(view, w, out.span()), ShapeError);
  view = x.view();
  view.stride = k - 1;
  EXPECT_THROW(test::product_into(view, w, out.span()), ShapeError);
  QuantizedView quantized = q.view();
  quantized.codes = nullptr;
  EXPECT_THROW(test::product_into(quantized, w, out.span()), ShapeError);
}

TEST_F(GemmErrors, WhatActivationsMayNotBe) {
  EXPECT_THROW(test::product_into(quantize(x.view(), {.layout = ScaleLayout::tiled_128x4}).view(),
                                  w, out.span()),
               ShapeError);
  const Matrix transposed = make(Fill::gaussian, k, m, 1);
  EXPECT_THROW(test::product_into(quantize(transposed.view(), {.axis = BlockAxis::columns}).view(),
                                  w, out.span()),
               ShapeError);
  const QuantizeOptions by32{.quantizer = Quantizer::mse, .block = 32};
  EXPECT_THROW(test::product_into(quantize(x.view(), by32).view(), w, out.span()), ShapeError);
  MatrixView view = x.view();
  view.dtype = static_cast<DType>(9);
  EXPECT_THROW(test::product_into(view, w, out.span()), ValueError);
  EXPECT_THROW(test::product(x.view(), w, static_cast<DType>(9)), ValueError);
  view = x.view();
  view.device.type = DeviceType::cuda;
  EXPECT_THROW(test::product_into(view, w, out.span()), DeviceError);
  EXPECT_THROW(test::product_into(x.view(), w, out.span(), {.backend = "abacus"}), ValueError);
}

TEST_F(GemmErrors, TheCpuHasNothingToTune) {
  const auto message = [](auto&& call) -> std::string {
    try {
      call();
    } catch (const Error& e) {
      return e.what();
    }
    return "";
  };
  const GemmDescription d{.m = m, .n = n, .k = k, .autotune = true};
  EXPECT_THROW(plan_gemm(d), UnsupportedError);
  EXPECT_THROW(tune_gemm(d, {}), UnsupportedError);
  EXPECT_EQ(message([&] { plan_gemm(d); }),
            "plan_gemm: device = cpu, must be a GPU to be tuned: there is one kernel for a GEMM "
            "on cpu");
  GemmDescription named = d;
  named.kernel = "reference_w4a4";
  EXPECT_THROW(plan_gemm(named), ValueError);
  GemmDescription none = d;
  none.m = 0;
  EXPECT_THROW(tune_gemm(none, {}), ShapeError);
}

TEST_F(GemmErrors, Groups) {
  const QuantizedMatrix a = weights(n, k, 1), b = weights(n, k, 2);
  const QuantizedView views[] = {a.view(), b.view()};
  const PackedWeights two = pack_weights(views, {.groups = 2});
  const auto run = [&](std::vector<std::int32_t> ends, const test::ProductOptions& o = {}) {
    test::product_into(x.view(), two, out.span(), o, GemmForm::grouped, ends);
  };
  EXPECT_NO_THROW(run({1, 3}));
  EXPECT_THROW(run({2, 1}), ShapeError);
  EXPECT_THROW(run({-1, 1}), ShapeError);
  EXPECT_THROW(run({1, 4}), ShapeError);
  EXPECT_THROW(run({std::numeric_limits<std::int32_t>::max(), 3}), ShapeError);
  EXPECT_THROW(run({1}), ShapeError);
  EXPECT_THROW(run({1, 2, 3}), ShapeError);
  const std::vector<float> one(1), bias(static_cast<std::size_t>(n));
  EXPECT_THROW(run({1, 3}, {.group_alpha = one}), ShapeError);
  EXPECT_THROW(run({1, 3}, {.bias = bias}), ShapeError);
  EXPECT_THROW(test::product_into(x.view(), PackedWeights(), out.span(), {}, GemmForm::grouped),
               ShapeError);
  EXPECT_THROW(test::product(x.view(), two), ShapeError) << "a dense GEMM has one group";
}

TEST_F(GemmErrors, StartsOfGroups) {
  const QuantizedMatrix a = weights(n, k, 1), b = weights(n, k, 2);
  const QuantizedView views[] = {a.view(), b.view()};
  const PackedWeights two = pack_weights(views, {.groups = 2});
  const GemmPlan plan =
      plan_gemm(two, {.m = m, .form = GemmForm::grouped, .x = DType::f32, .out = DType::f32});
  const auto run = [&](std::vector<std::int32_t> starts, std::vector<std::int32_t> ends) {
    gemm(
        plan,
        {.x = x.view(), .weights = two, .out = out.span(), .row_ends = ends, .row_starts = starts});
  };
  EXPECT_NO_THROW(run({0, 2}, {1, 3}));
  EXPECT_THROW(run({0}, {1, 3}), ShapeError);
  EXPECT_THROW(run({0, 1}, {2, 3}), ShapeError) << "they overlap";
  EXPECT_THROW(run({2, 2}, {1, 3}), ShapeError);
  EXPECT_THROW(run({-1, 2}, {1, 3}), ShapeError);
}

TEST_F(GemmErrors, EveryGroup) {
  const QuantizedMatrix both = weights(2 * n, k, 1);
  const PackedWeights two = pack_weights(both.view(), {.groups = 2});
  Matrix right(DType::f32, m, 2 * n);
  const auto run = [&](const Matrix& from, Matrix& to) {
    test::product_into(from.view(), two, to.span(), {}, GemmForm::every_group);
  };
  EXPECT_NO_THROW(run(x, right));
  EXPECT_THROW(run(x, out), ShapeError);
  EXPECT_THROW(run(make(Fill::gaussian, m, 3 * k, 1), right), ShapeError);
}

TEST(Gemm, OfNoColumnsIsTheBias) {
  const PackedWeights w = pack_weights(QuantizedMatrix({.rows = 5, .cols = 0}).view());
  const std::vector<float> bias = {1, 2, 3, 4, 5};
  const Matrix y = test::product(Matrix(DType::f32, 2, 0).view(), w, DType::f32, {.bias = bias});
  for (std::int64_t n = 0; n < 5; ++n)
    EXPECT_EQ(y.view().at(1, n), bias[static_cast<std::size_t>(n)]);
}

TEST(GemmTiling, CoversEveryShapeWithWholeTiles) {
  GemmKernels kernels;
  kernels.direct.records.strip_rows = 4;
  kernels.direct.most_rows = 8;
  kernels.tile.records.strip_rows = 8;
  kernels.tile.panels = 2;
  kernels.tile.decoded_bytes = 320;
  kernels.tile.run = [](const std::byte*, std::int64_t, const std::byte*, int, float*,
                        std::int64_t) {};
  for (const std::int64_t m : {0, 1, 8, 9, 300, 5000})
    for (const std::int64_t n : {1, 16, 33, 4096})
      for (const std::int64_t blocks : {0, 1, 5, 448})
        for (const int threads : {1, 2, 64}) {
          const GemmTiling t = choose_gemm_tiling(kernels, m, n, blocks, threads, false);
          EXPECT_EQ(t.direct, m <= 8);
          EXPECT_EQ(t.rows % kernels.records(t.direct).strip_rows, 0);
          EXPECT_GE(t.panels, 1);
          if (t.direct) continue;
          EXPECT_EQ(t.panels % kernels.tile.panels, 0);
          EXPECT_EQ(t.depth % kGroupBlocks, 0);
          EXPECT_TRUE(blocks == 0 || t.depth > 0);
        }
  kernels.direct.differs = true;
  EXPECT_FALSE(choose_gemm_tiling(kernels, 1, 64, 8, 2, true).direct);
  EXPECT_TRUE(choose_gemm_tiling(kernels, 1, 64, 8, 2, false).direct);
}

}  // namespace nvfp4::gemm_options_test
