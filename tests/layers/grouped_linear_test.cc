#include <gtest/gtest.h>

#include "layers/layer_cases.h"

namespace nvfp4::grouped_linear_test {

using test::contains;
using test::Fill;
using test::make;
using test::message_of;
using test::same_bits;
using test::worst_error;

constexpr std::int64_t kG = 3, kN = 21, kK = 80;

MatrixView part(MatrixView m, std::int64_t col, std::int64_t cols) {
  m.data = static_cast<const char*>(m.data) + col * dtype_size(m.dtype);
  m.cols = cols;
  return m;
}
/// Columns [col, col + cols) of a quantized matrix, copied.
QuantizedMatrix part(const QuantizedView& q, std::int64_t col, std::int64_t cols) {
  QuantizedMatrix p({.rows = q.shape.rows, .cols = cols, .scope = q.shape.scope});
  for (std::int64_t r = 0; r < q.shape.rows; ++r) {
    std::memcpy(p.codes() + r * cols / 2, q.codes + (r * q.shape.cols + col) / 2,
                static_cast<std::size_t>(cols / 2));
    std::memcpy(p.scales() + r * cols / 16, q.scales + (r * q.shape.cols + col) / 16,
                static_cast<std::size_t>(cols / 16));
  }
  std::copy_n(q.global_scale, q.shape.global_count(), p.global_scale());
  return p;
}

/// W_g of all groups in one matrix, NVFP4 along K.
struct Stacked {
  Matrix dense = make(Fill::student, kG* kN, kK, 31, DType::bf16);
  /// (G, K, N): each group transposed.
  Matrix columns() const {
    Matrix m(DType::bf16, kG * kK, kN);
    for (std::int64_t g = 0; g < kG; ++g)
      for (std::int64_t n = 0; n < kN; ++n)
        for (std::int64_t k = 0; k < kK; ++k)
          test::set(m.span(), g * kK + k, n, dense.view().at(g * kN + n, k));
    return m;
  }
};

void expect_every_group(const GroupedLinear& linear, const std::vector<PackedWeights>& w) {
  for (const std::int64_t t : {0, 1, 5, 40})
    for (const bool shared : {false, true}) {
      const Matrix x = make(Fill::laplace, t, shared ? kK : kG * kK, 7, DType::bf16);
      Matrix y(DType::f32, t, kG * kN);
      linear.forward_into(x.view(), y.span());
      for (std::int64_t g = 0; g < kG; ++g) {
        const PackedWeights& wg = w[static_cast<std::size_t>(g)];
        const std::int64_t from = shared ? 0 : g * kK;
        if (linear.scheme() == Scheme::w4a16) {
          EXPECT_LE(worst_error(part(x.view(), from, kK), wg, part(y.view(), g * kN, kN)), 1.0);
          continue;
        }
        const QuantizedActivation a = linear.quantize(x.view());
        EXPECT_LE(worst_error(part(a.view(), from, kK).view(), wg, part(y.view(), g * kN, kN)),
                  1.0);
        Matrix again(DType::f32, t, kG * kN);
        linear.forward_into(a, again.span());
        EXPECT_TRUE(same_bits(y, again));
      }
    }
}

TEST(GroupedLinear, TakesDenseWeightsInBothLayouts) {
  const Stacked w;
  const Matrix columns = w.columns();
  const auto rows_list = split_groups(w.dense.view(), kG);
  const auto columns_list = split_groups({columns.view(), BlockAxis::columns}, kG);
  std::vector<PackedWeights> packed;
  for (const WeightView& g : rows_list)
    packed.push_back(pack_weights(g.dense, {.quantizer = Quantizer::mse}));
  for (const Scheme scheme : {Scheme::w4a4, Scheme::w4a16}) {
    expect_every_group(GroupedLinear(rows_list, {.scheme = scheme}), packed);
    expect_every_group(GroupedLinear(columns_list, {.scheme = scheme}), packed);
  }
}

TEST(GroupedLinear, TakesCheckpointWeightsWithAnyGlobalScales) {
  const Stacked w;
  const Matrix columns = w.columns();
  for (const GlobalScope scope : {GlobalScope::tensor, GlobalScope::vector}) {
    QuantizedMatrix q = quantize(w.dense.view(), {.scope = scope});
    if (scope == GlobalScope::vector)
      for (std::int64_t i = 0; i < kG * kN; ++i)
        q.global_scale()[i] = std::ldexp(1.0f, static_cast<int>(i % 19) - 9);
    const auto groups = split_groups(q.view(), kG);
    std::vector<PackedWeights> packed;
    for (std::int64_t g = 0; g < kG; ++g) {
      QuantizedMatrix own({.rows = kN, .cols = kK, .scope = scope});
      std::memcpy(own.codes(), q.codes() + g * kN * kK / 2, kN * kK / 2);
      std::memcpy(own.scales(), q.scales() + g * kN * kK / 16, kN * kK / 16);
      std::memcpy(own.global_scale(),
                  q.global_scale() + (scope == GlobalScope::vector ? g * kN : 0),
                  4 * static_cast<std::size_t>(own.shape().global_count()));
      packed.push_back(pack_weights(own.view()));
    }
    for (const Scheme scheme : {Scheme::w4a4, Scheme::w4a16})
      expect_every_group(GroupedLinear(groups, {.scheme = scheme}), packed);
  }
  const QuantizedMatrix q = quantize(columns.view(), {.axis = BlockAxis::columns});
  const auto groups = split_groups(q.view(), kG);
  std::vector<PackedWeights> packed;
  for (const WeightView& g : groups) packed.push_back(pack_weights(g.quantized));
  const Matrix whole = dequantize(q.view()), third = dequantize(groups[2].quantized);
  EXPECT_EQ(std::memcmp(whole.data<float>() + 2 * kK * kN, third.data<float>(), 4 * kK * kN), 0);
  expect_every_group(GroupedLinear(groups, {.scheme = Scheme::w4a16}), packed);
}

TEST(GroupedLinear, TakesRowsOfGroups) {
  const Stacked w;
  const auto list = split_groups(w.dense.view(), kG);
  const Matrix x = make(Fill::gaussian, 33, kK, 7);  // FP32: no sum is exact
  const std::vector<std::int32_t> ends = {0, 28,
                                          31};  // none, many and few rows, and rows of no group
  for (const Scheme scheme : {Scheme::w4a4, Scheme::w4a16}) {
    const GroupedLinear linear(list, {.scheme = scheme, .batch_invariant = true});
    Matrix y(DType::f32, 33, kN), again(DType::f32, 33, kN);
    linear.forward_rows_into(x.view(), ends, y.span());
    for (std::int64_t r = 0; r < 33; ++r) {
      MatrixView row = x.view();
      row.data = static_cast<const char*>(row.data) + r * kK * 4;
      row.rows = 1;
      const auto g = r < 28 ? 1u : 2u;
      const Matrix own =
          Linear(list[g], {.scheme = scheme, .batch_invariant = true}).forward(row, DType::f32);
      for (std::int64_t n = 0; n < kN; ++n)
        ASSERT_EQ(y.view().at(r, n), r < 31 ? own.view().at(0, n) : 0.0f) << r;
    }
    if (scheme == Scheme::w4a16) continue;
    linear.forward_rows_into(linear.quantize(x.view()), ends, again.span());
    EXPECT_TRUE(same_bits(y, again));
  }
}

TEST(GroupedLinear, AddsTheBiasOfEachGroup) {
  const Stacked w;
  const auto list = split_groups(w.dense.view(), kG);
  const std::vector<float> bias = test::random_floats(kG * kN, 5);
  const Matrix x(DType::bf16, 2, kK);  // zeros
  Matrix y(DType::f32, 2, kG * kN);
  GroupedLinear(list, {.bias = bias}).forward_into(x.view(), y.span());
  for (std::int64_t i = 0; i < kG * kN; ++i)
    EXPECT_EQ(y.view().at(1, i), bias[static_cast<std::size_t>(i)]);
}

TEST(GroupedLinear, DoesNotDependOnThreads) {
  const Stacked w;
  const auto list = split_groups(w.dense.view(), kG);
  const Matrix x = make(Fill::gaussian, 50, kG * kK, 7, DType::bf16);
  for (const Scheme scheme : {Scheme::w4a4, Scheme::w4a16}) {
    const GroupedLinear linear(list, {.scheme = scheme, .max_tokens = 64});
    test::expect_independent_of_threads([&] {
      Matrix y(DType::bf16, 50, kG * kN);
      linear.forward_into(x.view(), y.span());
      return y;
    });
  }
}

TEST(GroupedLinear, NamesWhatIsWrong) {
  const Stacked w;
  EXPECT_THROW(split_groups(w.dense.view(), 2), ShapeError);
  EXPECT_THROW(split_groups(w.dense.view(), 0), ShapeError);
  EXPECT_THROW(split_groups({w.dense.view(), BlockAxis::columns}, kG), ShapeError);
  const QuantizedMatrix tiled = quantize(w.dense.view(), {.layout = ScaleLayout::tiled_128x4});
  EXPECT_THROW(split_groups(tiled.view(), kG), UnsupportedError);
  EXPECT_THROW(GroupedLinear(std::span<const WeightView>()), ShapeError);
  EXPECT_THROW(GroupedLinear().groups(), ValueError);
  auto list = split_groups(w.dense.view(), kG);
  EXPECT_THROW(GroupedLinear(list, {.device = Device::cuda(1000)}), UnsupportedError);
  EXPECT_THROW(GroupedLinear(list, {.autotune = true}), UnsupportedError);
  const GroupedLinear linear(list, {.max_tokens = 8});
  const Matrix x = make(Fill::gaussian, 4, 2 * kK, 7), many = make(Fill::gaussian, 9, kK, 7);
  Matrix y(DType::f32, 4, kG * kN), more(DType::f32, 9, kN);
  EXPECT_TRUE(
      contains(message_of<ShapeError>([&] { linear.forward_into(x.view(), y.span()); }), "160"));
  const std::vector<std::int32_t> ends = {1, 2, 3}, falling = {2, 1, 3};
  EXPECT_THROW(linear.forward_rows_into(many.view(), ends, more.span()), ShapeError);
  const Matrix few = make(Fill::gaussian, 3, kK, 7);
  Matrix out(DType::f32, 3, kN);
  EXPECT_THROW(linear.forward_rows_into(few.view(), falling, out.span()), ShapeError);
  const GroupedLinear weights_only(list, {.scheme = Scheme::w4a16});
  EXPECT_THROW(weights_only.quantize(few.view()), ValueError);
  EXPECT_THROW(weights_only.forward_into(linear.quantize(few.view()), y.span()), ValueError);
  list[1].dense.rows -= 1;
  EXPECT_THROW((GroupedLinear(list)), ShapeError);
}

}  // namespace nvfp4::grouped_linear_test
