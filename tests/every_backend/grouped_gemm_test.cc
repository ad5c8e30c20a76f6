#include "gemm_cases.h"
#include "testing.h"

namespace nvfp4::grouped_gemm_test {

using test::activations;
using test::Fill;
using test::make;
using test::weights;
using test::worst_error;

PackedWeights groups_of(std::int64_t groups, std::int64_t n, std::int64_t k) {
  std::vector<QuantizedMatrix> w;
  std::vector<QuantizedView> views;
  for (std::int64_t g = 0; g < groups; ++g)
    w.push_back(weights(n, k, static_cast<std::uint64_t>(g) + 9,
                        g % 2 ? GlobalScope::vector : GlobalScope::tensor));
  for (const QuantizedMatrix& q : w) views.push_back(q.view());
  return pack_weights(views, {.groups = groups});
}

MatrixView rows_of(MatrixView x, std::int64_t begin, std::int64_t end) {
  x.data = static_cast<const char*>(x.data) + begin * x.stride * dtype_size(x.dtype);
  x.rows = end - begin;
  return x;
}
QuantizedView rows_of(QuantizedView x, std::int64_t begin, std::int64_t end) {
  x.codes += begin * x.shape.cols / 2;
  x.scales += begin * x.shape.blocks();
  if (x.shape.scope == GlobalScope::vector) x.global_scale += begin;
  x.shape.rows = end - begin;
  return x;
}
MatrixView cols_of(MatrixView x, std::int64_t begin, std::int64_t cols) {
  x.data = static_cast<const char*>(x.data) + begin * dtype_size(x.dtype);
  x.cols = cols;
  return x;
}

class GroupedGemmOnEveryBackend : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(, GroupedGemmOnEveryBackend, testing::ValuesIn(test::available_backends()),
                         [](const auto& p) { return test::identifier(p.param); });

template <class X>
void expect_groups(const X& x, std::int64_t m, const std::string& backend) {
  const std::int64_t n = 35, k = 208;
  const PackedWeights w = groups_of(5, n, k);
  // Empty groups at the start, in the middle and at the end; rows that belong to no group.
  const auto all = static_cast<std::int32_t>(m);
  const std::vector<std::vector<std::int32_t>> cases = {
      {0, 1, 1, all - 4, all - 4}, {all, all, all, all, all}, {0, 0, 0, 0, 0}, {2, 9, 10, 40, all}};
  const std::vector<float> alpha = {1.5f, -2.0f, 0.25f, 1.0f, 3.0f};
  const std::vector<float> bias = test::random_floats(5 * 35, 3);
  for (const std::vector<std::int32_t>& ends : cases)
    for (const bool extras : {false, true})
      for (const DType to : {DType::f32, DType::bf16}) {
        Matrix out(to, m, n);
        std::memset(out.data<char>(), 0x5A, static_cast<std::size_t>(m * n * dtype_size(to)));
        test::ProductOptions o{.backend = backend};
        if (extras) o.group_alpha = alpha, o.bias = bias;
        test::product_into(x, w, out.span(), o, GemmForm::grouped, ends);
        std::int64_t row = 0;
        for (std::size_t g = 0; g < ends.size(); ++g) {
          ASSERT_LE(worst_error(rows_of(x, row, ends[g]), w, rows_of(out.view(), row, ends[g]),
                                extras ? alpha[g] : 1.0f,
                                extras ? std::span<const float>(bias).subspan(g * 35, 35)
                                       : std::span<const float>{},
                                static_cast<std::int64_t>(g)),
                    1.0)
              << "group " << g;
          row = ends[g];
        }
        for (std::int64_t i = row * n * dtype_size(to); i < m * n * dtype_size(to); ++i)
          ASSERT_EQ(out.data<char>()[i], 0x5A) << "row " << i / n;
      }
}

TEST_P(GroupedGemmOnEveryBackend, EveryGroupIsAProductOfItsOwn) {
  const std::int64_t m = 83, k = 208;
  for (const DType in : {DType::f32, DType::bf16, DType::f16})
    expect_groups(make(Fill::gaussian, m, k, 1, in).view(), m, GetParam());
  for (const auto scope : {GlobalScope::tensor, GlobalScope::vector})
    expect_groups(activations(m, k, 1, scope).view(), m, GetParam());
}

TEST_P(GroupedGemmOnEveryBackend, EveryRowGoesToEveryGroup) {
  const std::int64_t n = 21, k = 112, groups = 3;
  const PackedWeights w = groups_of(groups, n, k);
  const std::vector<float> alpha = {1.5f, -2.0f, 0.25f};
  for (const std::int64_t t : {0, 1, 7, 66})
    for (const bool shared : {false, true}) {
      const std::int64_t cols = shared ? k : groups * k;
      const Matrix x = make(Fill::gaussian, t, cols, 6, DType::bf16);
      Matrix out(DType::f32, t, groups * n);
      const test::ProductOptions o{.group_alpha = alpha, .backend = GetParam()};
      test::product_into(x.view(), w, out.span(), o, GemmForm::every_group);
      const QuantizedMatrix q = activations(t, cols, 6, GlobalScope::vector);
      Matrix out4(DType::f32, t, groups * n);
      test::product_into(q.view(), w, out4.span(), o, GemmForm::every_group);
      for (std::int64_t g = 0; g < groups; ++g) {
        const std::int64_t from = shared ? 0 : g * k;
        const float a = alpha[static_cast<std::size_t>(g)];
        EXPECT_LE(
            worst_error(cols_of(x.view(), from, k), w, cols_of(out.view(), g * n, n), a, {}, g),
            1.0);
        // The same columns, copied out.
        QuantizedMatrix part({.rows = t, .cols = k, .scope = GlobalScope::vector});
        for (std::int64_t r = 0; r < t; ++r) {
          std::memcpy(part.codes() + r * k / 2, q.codes() + (r * cols + from) / 2,
                      static_cast<std::size_t>(k / 2));
          std::memcpy(part.scales() + r * k / 16, q.scales() + (r * cols + from) / 16,
                      static_cast<std::size_t>(k / 16));
          part.global_scale()[r] = q.global_scale()[r];
        }
        EXPECT_LE(worst_error(part.view(), w, cols_of(out4.view(), g * n, n), a, {}, g), 1.0);
      }
    }
}

}  // namespace nvfp4::grouped_gemm_test
