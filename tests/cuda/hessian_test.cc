// mse with a Hessian on the GPU gives the bytes of the search over all 126 scales, which the CPU
// does. Skipped, with the reason, without a GPU.
#include "plain_cases.h"
#include "test_stride.h"
#include "testing.h"

namespace nvfp4::cuda_hessian_test {

using test::Fill;

class CudaHessian : public testing::Test {
 protected:
  void SetUp() override {
    if (const std::string reason = why_unavailable(Device::cuda()); !reason.empty())
      GTEST_SKIP() << "no GPU to run on: " << reason;
  }
  static std::uint64_t fresh_seed() { return std::random_device{}() % 1'000'000; }

  /// `saturated` data get the global scale 1.
  static void expect_the_bytes_of_the_cpu(const Matrix& x, const Matrix& h, QuantizeOptions o,
                                          bool saturated = false) {
    const GlobalScale one;
    if (saturated) o.global = {&one, 1};
    o.quantizer = Quantizer::mse;
    o.block = static_cast<int>(h.cols());
    o.hessian = h.view();
    const QuantizedMatrix want = quantize(x.view(), o);
    const Matrix there = to_device(h.view(), Device::cuda());
    o.hessian = there.view();
    EXPECT_TRUE(to_device(quantize(to_device(x.view(), Device::cuda()).view(), o).view(), {}) ==
                want);
  }
};

/// H of many rows and of few more than a block, or fewer: there are eigenvalues to prune by, near
/// and far, or none.
TEST_F(CudaHessian, AnyConditionGivesTheBestScale) {
  const std::int64_t cols = 256;
  // Not a whole number of the 32 that a warp takes, and more than that.
  const std::int64_t vectors = std::max(45u, 349 / test::test_stride());
  for (const Fill fill : test::kFills)
    for (const int block : {16, 32})
      for (const std::int64_t tokens : {12, 17, 20, 33, 40, 64, 300, 2048}) {
        SCOPED_TRACE(testing::Message() << "fill " << static_cast<int>(fill) << " block " << block
                                        << " tokens " << tokens);
        const Matrix x = test::make(fill, vectors, cols, fresh_seed());
        const Matrix rows = test::make(Fill::gaussian, tokens, cols, fresh_seed());
        Matrix h(DType::f32, cols, block);
        gram_into(rows.view(), h.span());
        expect_the_bytes_of_the_cpu(x, h, {}, fill == Fill::saturated);
      }
}

/// Every type and both axes, with vectors that do not fill a warp.
TEST_F(CudaHessian, BadConditionGivesTheBestScale) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
    for (const BlockAxis axis : {BlockAxis::rows, BlockAxis::columns})
      for (const int block : {16, 32})
        for (const std::int64_t vectors : {1, 31, 33, 257, 1100}) {
          SCOPED_TRACE(testing::Message() << "block " << block << " vectors " << vectors);
          const std::int64_t k = 12 * block;
          const bool rows = axis == BlockAxis::rows;
          const Matrix x = test::make(Fill::gaussian, rows ? vectors : k, rows ? k : vectors,
                                      fresh_seed(), dtype);
          expect_the_bytes_of_the_cpu(x, test::ill_conditioned_hessian(k, block, fresh_seed()),
                                      {.axis = axis});
        }
}

/// In block j of K only the j-th pair of elements belongs together, and the diagonal has magnitudes
/// of its own: an element in another's place changes nearly every choice.
TEST_F(CudaHessian, TellsEveryPairOfElementsFromTheOthers) {
  for (const int block : {16, 32})
    for (const float correlation : {0.98f, -0.9f, 0.5f}) {
      SCOPED_TRACE(testing::Message() << "block " << block << " correlation " << correlation);
      const std::int64_t pairs = block * (block - 1) / 2;
      Matrix h(DType::f32, pairs * block, block);
      std::int64_t j = 0;
      for (int a = 0; a < block; ++a)
        for (int b = 0; b < a; ++b, ++j) {
          const auto size = [&](int i) {  // far from each other, the pair at least 4
            return std::ldexp(i == a || i == b ? 4.0f : 1.0f, (i * 5 + a) % 7);
          };
          for (int i = 0; i < block; ++i) test::set(h.span(), j * block + i, i, size(i));
          const float both = correlation * std::sqrt(size(a) * size(b));
          test::set(h.span(), j * block + a, b, both);
          test::set(h.span(), j * block + b, a, both);
        }
      const Matrix x = test::make(Fill::gaussian, 300, pairs * block, fresh_seed());
      expect_the_bytes_of_the_cpu(x, h, {});
    }
}

/// Elements on the thresholds of some scale and next to them, where the sign of the difference
/// turns over, and blocks of which several scales make nothing of an error: costs that are equal,
/// or differ in the last place.
TEST_F(CudaHessian, DecidesTiesAsTheCpuDoes) {
  constexpr float kValues[] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6, 0.25f, 0.75f, 1.25f, 1.75f, 2.5f, 5};
  for (const int block : {16, 32})
    for (const std::int64_t tokens : {64, 4096}) {
      const std::int64_t k = 16 * block;
      std::mt19937_64 rng(fresh_seed());
      Matrix x(DType::f32, 1500, k);
      for (std::int64_t r = 0; r < x.rows(); ++r)
        for (std::int64_t b = 0; b < k; b += block) {
          const float scale = E4M3{static_cast<std::uint8_t>(24 + rng() % 100)}.to_float();
          const bool exact = rng() % 2 != 0;  // not on the thresholds
          for (std::int64_t c = b; c < b + block; ++c) {
            float v = scale * kValues[rng() % (exact ? 8 : std::size(kValues))];
            if (!exact && rng() % 2) v = std::nextafter(v, rng() % 2 ? 0.0f : 1e9f);
            test::set(x.span(), r, c, rng() % 2 ? v : -v);
          }
        }
      const Matrix rows = test::make(Fill::gaussian, tokens, k, fresh_seed());
      Matrix h(DType::f32, k, block);
      gram_into(rows.view(), h.span());
      SCOPED_TRACE(testing::Message() << "block " << block << " tokens " << tokens);
      expect_the_bytes_of_the_cpu(x, h, {}, true);
    }
}

/// The same of what is measured: divisors that are rounded, one for each row too, and blocks that
/// are all thresholds.
TEST_F(CudaHessian, TiesAreDecidedAsOnTheCpu) {
  for (const DType dtype : {DType::bf16, DType::f16, DType::f32})
    for (const GlobalScope scope : {GlobalScope::tensor, GlobalScope::vector})
      for (const int block : {16, 32})
        for (const float largest : {1.5f, 1.0f, 1.125f, 1.3125f, 1.875f, 1.6640625f}) {
          SCOPED_TRACE(testing::Message() << "block " << block << " largest " << largest);
          const std::int64_t k = 8 * block;
          const Matrix x = test::tied_elements(largest, 1100, k, fresh_seed(), dtype);
          const Matrix rows = test::make(Fill::gaussian, 100, k, fresh_seed());
          Matrix h(DType::f32, k, block);
          gram_into(rows.view(), h.span());
          expect_the_bytes_of_the_cpu(x, h, {.scope = scope});
          expect_the_bytes_of_the_cpu(x, test::ill_conditioned_hessian(k, block, fresh_seed()),
                                      {.scope = scope});
        }
}

/// Global scales that are given, far from what is measured: clipped, tiny, or so extreme that
/// factors are rounded to subnormals.
TEST_F(CudaHessian, AnyGlobalScaleGivesTheBestScale) {
  for (const int block : {16, 32})
    for (const float multiplier : {1e-37f, 1e-30f, 1e-5f, 0.01f, 3.0f, 1e20f, 1e35f}) {
      SCOPED_TRACE(testing::Message() << "block " << block << " multiplier " << multiplier);
      const std::int64_t k = 4 * block;
      Matrix x = test::make(Fill::gaussian, 200, k, fresh_seed());
      for (std::int64_t r = 0; r < x.rows(); ++r)  // from far below to far above the scale
        for (std::int64_t c = 0; c < k; ++c)
          test::set(
              x.span(), r, c,
              x.view().at(r, c) * multiplier * std::ldexp(1.0f, static_cast<int>(r % 40) - 20));
      const GlobalScale global = GlobalScale::from_multiplier(multiplier);
      expect_the_bytes_of_the_cpu(x, test::ill_conditioned_hessian(k, block, fresh_seed()),
                                  {.global = {&global, 1}});
    }
}

/// Channels of very different magnitude, H near overflow and underflow, indefinite, with an empty
/// row, with NaN and infinity: whatever there is to bound costs by, the choice is the same.
TEST_F(CudaHessian, AnyContentGivesTheBestScale) {
  const std::int64_t k = 128;
  const int block = 16;
  for (int i = 0; i < 40; ++i) {
    SCOPED_TRACE(testing::Message() << "case " << i);
    std::mt19937_64 rng(static_cast<std::uint64_t>(i));
    const Matrix x = test::make(Fill::gaussian, 333, k, rng());
    Matrix h = test::make(i % 5 == 1 ? Fill::huge : Fill::gaussian, k, block, rng());
    if (i % 5 >= 2) {
      Matrix rows = test::make(Fill::gaussian, 100, k, rng());
      for (std::int64_t c = 0; c < k; ++c) {
        const float size = std::ldexp(1.0f, i % 5 == 2   ? static_cast<int>(rng() % 41) - 20
                                            : i % 5 == 3 ? i - 20
                                                         : 3 * i - 60);
        for (std::int64_t t = 0; t < rows.rows(); ++t)
          test::set(rows.span(), t, c, size * rows.view().at(t, c));
      }
      gram_into(rows.view(), h.span());
      if (i % 4 == 1)  // dead channels
        for (std::int64_t c = 5; c < k; c += 48)
          for (std::int64_t d = 0; d < block; ++d) {
            test::set(h.span(), c, d, 0);
            test::set(h.span(), c / block * block + d, c % block, 0);
          }
    }
    if (i % 4 == 3) test::set(h.span(), 3, 2, i % 8 == 3 ? NAN : INFINITY);
    expect_the_bytes_of_the_cpu(x, h, {});
  }
}

}  // namespace nvfp4::cuda_hessian_test
