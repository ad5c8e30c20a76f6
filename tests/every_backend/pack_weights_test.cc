#include "gemm_cases.h"
#include "placed.h"
#include "testing.h"

namespace nvfp4::pack_weights_test {

using test::Fill;

class PackWeightsOnEveryBackend : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(, PackWeightsOnEveryBackend, testing::ValuesIn(test::available_backends()),
                         [](const auto& p) { return test::identifier(p.param); });

void expect_same(const PackedWeights& a, const PackedWeights& b, const std::string& what) {
  ASSERT_EQ(a.shape(), b.shape()) << what;
  const std::span<const std::byte> got = a.memory(), want = b.memory();
  for (std::size_t i = 0; i < want.size(); ++i)
    ASSERT_EQ(got[i], want[i]) << what << ", byte " << i;
}

TEST_P(PackWeightsOnEveryBackend, DenseOnesAreQuantizedThenPacked) {
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    test::Choice choose(seed);
    const std::int64_t n = 1 + static_cast<std::int64_t>(choose.rng() % 50);
    const std::int64_t k = 16 * static_cast<std::int64_t>(choose.rng() % 14);
    const Matrix w =
        test::strided(choose.fill(), n, k, choose.of({0, 0, 1, 2, 7}), seed, choose.dtype());
    MatrixView view = w.view();
    view.cols = k;
    QuantizeOptions options;
    options.quantizer =
        choose.of({Quantizer::max, Quantizer::max, Quantizer::four_over_six, Quantizer::mse});
    options.scope = choose.of({GlobalScope::tensor, GlobalScope::vector});
    std::vector<GlobalScale> given(
        options.scope == GlobalScope::tensor ? 1 : static_cast<std::size_t>(n));
    for (GlobalScale& g : given)
      g = GlobalScale::from_multiplier(0.001f * static_cast<float>(1 + choose.rng() % 1000));
    if (choose.one_in(2)) options.global = given;
    std::vector<float> weights = test::random_floats(static_cast<std::size_t>(k), seed);
    for (float& f : weights) f = std::abs(f);
    if (options.quantizer == Quantizer::mse && k > 0 && choose.one_in(2)) options.weights = weights;
    options.backend = "reference";
    const PackedWeights want = pack_weights(quantize(view, options).view());
    options.backend = GetParam();
    expect_same(pack_weights(view, options), want, "seed " + std::to_string(seed));
  }
}

/// Results larger than the caches are stored by other instructions. The last panel has 4 rows.
TEST_P(PackWeightsOnEveryBackend, DenseOnesLargerThanTheCaches) {
  if (GetParam() == "reference") return;
  constexpr std::int64_t kRows = 100, kCopies = 41, kCols = 8192;
  const Matrix part = test::make(Fill::student, kRows, kCols, 5, DType::bf16);
  Matrix w(DType::bf16, kRows * kCopies, kCols);
  const auto part_bytes = static_cast<std::size_t>(part.view().size()) * sizeof(BF16);
  for (std::size_t i = 0; i < kCopies; ++i)
    std::memcpy(w.data<char>() + i * part_bytes, part.data<char>(), part_bytes);
  const QuantizeOptions max{.quantizer = Quantizer::max, .backend = GetParam()};
  const QuantizedMatrix codes = quantize(w.view(), max);
  ASSERT_GT(codes.shape().code_bytes(), 16 << 20);
  expect_same(pack_weights(w.view(), max), pack_weights(codes.view()), "large");
}

TEST_P(PackWeightsOnEveryBackend, DenseColumnsAndHessiansToo) {
  const Matrix w = test::make(Fill::student, 64, 35, 3, DType::bf16);
  QuantizeOptions columns{.quantizer = Quantizer::mse, .axis = BlockAxis::columns};
  const PackedWeights want = pack_weights(quantize(w.view(), columns).view());
  columns.backend = GetParam();
  expect_same(pack_weights(w.view(), columns), want, "columns");

  const Matrix rows = test::make(Fill::student, 35, 64, 3, DType::bf16);
  const Matrix x = test::make(Fill::gaussian, 100, 64, 4);
  Matrix hessian(DType::f32, 64, 16);
  gram_into(x.view(), hessian.span());
  const QuantizeOptions with{.quantizer = Quantizer::mse, .hessian = hessian.view()};
  QuantizeOptions here = with;
  here.backend = GetParam();
  expect_same(pack_weights(rows.view(), here), pack_weights(quantize(rows.view(), with).view()),
              "hessian");
}

}  // namespace nvfp4::pack_weights_test
