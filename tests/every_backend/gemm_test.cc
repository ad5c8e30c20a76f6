#include "nvfp4/gemm.h"

#include "gemm_cases.h"
#include "testing.h"

namespace nvfp4::gemm_test {

using test::activations;
using test::Fill;
using test::make;
using test::same_bits;
using test::weights;
using test::worst_error;

constexpr DType kDTypes[] = {DType::f32, DType::bf16, DType::f16};

struct Size {
  std::int64_t m, n, k;
};
/// Odd M and N, every remainder of 4 blocks, and more than one step of every tile.
constexpr Size kSizes[] = {{0, 5, 32},     {1, 1, 16},     {1, 33, 48},    {2, 16, 64},
                           {3, 17, 80},    {5, 31, 112},   {6, 18, 304},   {7, 32, 128},
                           {8, 47, 336},   {9, 129, 272},  {16, 65, 1040}, {17, 64, 96},
                           {33, 50, 1616}, {65, 34, 2064}, {130, 81, 208}, {263, 19, 144}};

std::string describe(const Size& s) {
  return std::to_string(s.m) + " x " + std::to_string(s.n) + " x " + std::to_string(s.k);
}

class GemmOnEveryBackend : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(, GemmOnEveryBackend, testing::ValuesIn(test::available_backends()),
                         [](const auto& p) { return test::identifier(p.param); });

TEST_P(GemmOnEveryBackend, W4A16StaysWithinItsErrorBound) {
  std::uint64_t seed = 0;
  for (const Size& s : kSizes)
    for (const DType in : kDTypes)
      for (const bool batch_invariant : {false, true}) {
        const DType to = kDTypes[++seed % 3];
        const Matrix x = make(Fill::gaussian, s.m, s.k, seed, in);
        const auto scope = seed % 2 ? GlobalScope::tensor : GlobalScope::vector;
        const PackedWeights w = pack_weights(weights(s.n, s.k, seed, scope).view());
        const std::vector<float> bias = test::random_floats(static_cast<std::size_t>(s.n), seed);
        const test::ProductOptions o{.alpha = seed % 5 ? 1.0f : 0.37f,
                                     .bias = seed % 4 ? std::span<const float>{} : bias,
                                     .batch_invariant = batch_invariant,
                                     .backend = GetParam()};
        const Matrix y = test::product(x.view(), w, to, o);
        ASSERT_LE(worst_error(x.view(), w, y.view(), o.alpha, o.bias), 1.0)
            << describe(s) << " " << dtype_name(in) << " -> " << dtype_name(to);
      }
}

// Neighbours that differ by many binades, the largest often next to a weight of zero: rounding them
// all at one place would lose the small ones.
TEST_P(GemmOnEveryBackend, W4A16IsWithinBoundsOverManyBinades) {
  std::mt19937_64 rng(11);
  for (const DType in : kDTypes)
    for (const int most : {4, 13, 14, 15, 21, 22, 30, 100})
      for (const std::int64_t m : {1, 3, 8, 13}) {
        const std::int64_t n = 18, k = 48, range = in == DType::f16 ? std::min(most, 28) : most;
        Matrix x(in, m, k);
        for (std::int64_t r = 0; r < m; ++r)
          for (std::int64_t c = 0; c < k; ++c) {
            const int exponent = static_cast<int>(rng() % static_cast<std::uint64_t>(range + 1));
            const float fraction = 1.0f + static_cast<float>(rng() % 128) / 128.0f;
            const float magnitude = std::ldexp(fraction, exponent - static_cast<int>(range) / 2);
            test::set(x.span(), r, c, rng() % 2 ? magnitude : -magnitude);
          }
        QuantizedMatrix w = weights(n, k, rng());
        for (std::int64_t i = 0; i < w.shape().code_bytes(); ++i)
          if (rng() % 2) w.codes()[i] &= rng() % 2 ? 0xF0 : 0x0F;
        const PackedWeights packed = pack_weights(w.view());
        const Matrix y = test::product(x.view(), packed, DType::f32, {.backend = GetParam()});
        ASSERT_LE(worst_error(x.view(), packed, y.view()), 1.0)
            << dtype_name(in) << ", " << most << " binades, M = " << m;
      }
}

TEST_P(GemmOnEveryBackend, W4A4StaysWithinItsErrorBound) {
  std::uint64_t seed = 0;
  for (const Size& s : kSizes)
    for (const auto x_scope : {GlobalScope::tensor, GlobalScope::vector})
      for (const auto w_scope : {GlobalScope::tensor, GlobalScope::vector}) {
        const DType to = kDTypes[++seed % 3];
        const QuantizedMatrix x = activations(s.m, s.k, seed, x_scope);
        const PackedWeights w = pack_weights(weights(s.n, s.k, seed, w_scope).view());
        const std::vector<float> bias = test::random_floats(static_cast<std::size_t>(s.n), seed);
        const test::ProductOptions o{.alpha = seed % 5 ? 1.0f : -1.7f,
                                     .bias = seed % 4 ? std::span<const float>{} : bias,
                                     .backend = GetParam()};
        const Matrix y = test::product(x.view(), w, to, o);
        ASSERT_LE(worst_error(x.view(), w, y.view(), o.alpha, o.bias), 1.0)
            << describe(s) << " -> " << dtype_name(to);
      }
}

TEST_P(GemmOnEveryBackend, W4A4GivesTheReferenceBits) {
  std::uint64_t seed = 50;
  for (const Size& s : kSizes)
    for (const DType to : kDTypes) {
      const auto scope = ++seed % 2 ? GlobalScope::tensor : GlobalScope::vector;
      const QuantizedMatrix x = activations(s.m, s.k, seed, scope);
      const PackedWeights w = pack_weights(weights(s.n, s.k, seed, scope).view());
      const std::vector<float> bias = test::random_floats(static_cast<std::size_t>(s.n), seed);
      test::ProductOptions o{.alpha = 0.7f, .bias = bias, .backend = "reference"};
      const Matrix want = test::product(x.view(), w, to, o);
      o.backend = GetParam();
      ASSERT_TRUE(same_bits(test::product(x.view(), w, to, o), want))
          << describe(s) << " -> " << dtype_name(to);
    }
}

// One block only, all codes and all scales: the sum is one partial, which FP64 gives exactly.
TEST_P(GemmOnEveryBackend, W4A4BlockPartialsAreExact) {
  std::mt19937_64 rng(5);
  const auto fill = [&](QuantizedMatrix& q) {
    for (std::int64_t i = 0; i < q.shape().code_bytes(); ++i)
      q.codes()[i] = static_cast<std::uint8_t>(rng());
    for (std::int64_t i = 0; i < q.shape().scale_bytes(); ++i)
      q.scales()[i] = static_cast<std::uint8_t>(i % 127);
    for (std::int64_t i = 0; i < q.shape().global_count(); ++i) q.global_scale()[i] = 1.0f;
  };
  for (const std::int64_t m : {1, 5, 131}) {
    QuantizedMatrix x({.rows = m, .cols = 16}), w({.rows = 127 * 2, .cols = 16});
    fill(x);
    fill(w);
    for (int i = 0; i < 8; ++i)  // the largest magnitudes of either sign
      x.codes()[i] = 0x77, w.codes()[i] = 0x77, w.codes()[8 + i] = 0xFF;
    const Matrix y =
        test::product(x.view(), pack_weights(w.view()), DType::f32, {.backend = GetParam()});
    const test::Table xs = test::values_of(x.view()), ws = test::values_of(w.view());
    for (std::int64_t r = 0; r < m; ++r)
      for (std::int64_t n = 0; n < w.shape().rows; ++n) {
        double exact = 0;
        for (std::int64_t k = 0; k < 16; ++k) exact += xs(r, k) * ws(n, k);
        ASSERT_EQ(static_cast<double>(y.view().at(r, n)), exact) << r << ", " << n;
      }
  }
}

// The bounds would be worthless if a kernel that takes one scale of one block wrongly met them.
TEST_P(GemmOnEveryBackend, OneWrongScaleBreaksTheBound) {
  const Size s{9, 33, 1040};
  for (const DType to : kDTypes)
    for (std::uint64_t seed = 1; seed <= 6; ++seed) {
      QuantizedMatrix w = weights(s.n, s.k, seed);
      const PackedWeights right = pack_weights(w.view());
      std::mt19937_64 rng(seed);
      const auto victim = static_cast<std::int64_t>(rng() % (33 * 65));
      const std::uint8_t scale = w.scales()[victim];
      // The smallest change there is, but for FP32 only: BF16 and FP16 hide it in their rounding.
      w.scales()[victim] = static_cast<std::uint8_t>(
          to == DType::f32 ? (scale < 0x7E ? scale + 1 : scale - 1) : scale ^ 0x20);
      const PackedWeights wrong = pack_weights(w.view());
      const QuantizedMatrix q = activations(s.m, s.k, seed);
      const Matrix y4 = test::product(q.view(), wrong, to, {.backend = GetParam()});
      EXPECT_LE(worst_error(q.view(), wrong, y4.view()), 1.0);
      EXPECT_GT(worst_error(q.view(), right, y4.view()), 1.0) << "W4A4 " << dtype_name(to);
      for (const DType in : kDTypes) {
        const Matrix x = make(Fill::gaussian, s.m, s.k, seed, in);
        const Matrix y16 = test::product(x.view(), wrong, to, {.backend = GetParam()});
        EXPECT_LE(worst_error(x.view(), wrong, y16.view()), 1.0);
        EXPECT_GT(worst_error(x.view(), right, y16.view()), 1.0) << "W4A16 " << dtype_name(to);
      }
    }
}

TEST_P(GemmOnEveryBackend, ThreadsDoNotChangeTheResult) {
  const Size s{70, 200, 560};
  const QuantizedMatrix q = activations(s.m, s.k, 3);
  const PackedWeights w = pack_weights(weights(s.n, s.k, 3).view());
  std::vector<Matrix> one;
  for (const int threads : {1, 2, 5}) {
    set_threads(threads);
    for (const std::int64_t m : {std::int64_t{1}, s.m}) {
      QuantizedView part = q.view();
      part.shape.rows = m;
      Matrix y = test::product(part, w, DType::f32, {.backend = GetParam()});
      if (threads == 1)
        one.push_back(std::move(y));
      else
        EXPECT_TRUE(same_bits(y, one[m == 1 ? 0 : 4]));
      for (const DType in : kDTypes) {
        const Matrix x = make(Fill::student, m, s.k, 4, in);
        Matrix z = test::product(x.view(), w, DType::f32, {.backend = GetParam()});
        if (threads == 1)
          one.push_back(std::move(z));
        else
          EXPECT_TRUE(same_bits(z, one[(m == 1 ? 1u : 5u) + static_cast<unsigned>(in)]));
      }
    }
  }
  set_threads(0);
}

/// Kernels for few rows of x take several panels of a task in turn: n columns at once, several
/// panels a task, against 128 at a time, one panel a task.
void expect_same_columns(const std::string& backend, std::int64_t n, std::int64_t k,
                         std::initializer_list<std::int64_t> rows) {
  const std::int64_t alone = 128;
  const QuantizedMatrix all = weights(n, k, 6);
  const QuantizedMatrix q = activations(33, k, 6);
  const PackedWeights w = pack_weights(all.view());
  std::vector<PackedWeights> parts;
  for (std::int64_t n0 = 0; n0 < n; n0 += alone) {
    QuantizedView v = all.view();
    v.shape.rows = std::min(alone, n - n0);
    v.codes += n0 * (k / 2);
    v.scales += n0 * (k / kBlock);
    parts.push_back(pack_weights(v));
  }
  const test::ProductOptions o{.backend = backend};
  for (const int threads : {1, 2, 5})
    for (const std::int64_t m : rows) {
      const auto check = [&](const auto& x, const std::string& what) {
        set_threads(threads);
        const Matrix y = test::product(x, w, DType::f32, o);
        set_threads(1);
        for (std::int64_t n0 = 0; n0 < n; n0 += alone) {
          const Matrix part =
              test::product(x, parts[static_cast<std::size_t>(n0 / alone)], DType::f32, o);
          for (std::int64_t r = 0; r < m; ++r)
            ASSERT_EQ(
                std::memcmp(part.data<float>() + r * part.cols(), y.data<float>() + r * n + n0,
                            static_cast<std::size_t>(part.cols()) * sizeof(float)),
                0)
                << what << ", M = " << m << ", K = " << k << ", row " << r << ", from column " << n0
                << ", " << threads << " threads";
        }
      };
      QuantizedView few = q.view();
      few.shape.rows = m;
      check(few, "W4A4");
      for (const DType in : kDTypes)
        check(make(Fill::student, m, k, 7, in).view(), "W4A16 " + std::string(dtype_name(in)));
    }
  set_threads(0);
}

TEST_P(GemmOnEveryBackend, ColumnsDoNotAffectEachOther) {
  if (GetParam() == "reference") return expect_same_columns(GetParam(), 460, 48, {3});  // no panels
  // 11, 5 and 2 panels a task, 4 at most where strips of rows follow one another.
  expect_same_columns(GetParam(), 1405, 464, {1, 2, 4, 8, 9, 11, 20, 24, 33});
  for (const std::int64_t k : {16, 448, 480, 496})  // every remainder of four blocks
    expect_same_columns(GetParam(), 460, k, {3, 5, 6, 7});
}

TEST_P(GemmOnEveryBackend, BatchInvariantRowsHaveEqualBits) {
  const std::int64_t n = 49, k = 1104, most = 140;
  const PackedWeights w = pack_weights(weights(n, k, 8).view());
  const test::ProductOptions o{.batch_invariant = true, .backend = GetParam()};
  const QuantizedMatrix q = activations(most, k, 8);
  const Matrix all4 = test::product(q.view(), w, DType::f32, o);
  for (const std::int64_t m : {1, 2, 3, 7, 8, 9, 16, 31, 64, 65, 139}) {
    QuantizedView part = q.view();
    part.shape.rows = m;
    const Matrix y = test::product(part, w, DType::f32, o);
    EXPECT_EQ(std::memcmp(y.data<float>(), all4.data<float>(),
                          static_cast<std::size_t>(m * n) * sizeof(float)),
              0)
        << "W4A4, M = " << m;
  }
  for (const DType in : kDTypes) {
    const Matrix x = make(Fill::gaussian, most, k, 2, in);
    const Matrix all = test::product(x.view(), w, DType::f32, o);
    for (const std::int64_t m : {1, 2, 3, 7, 8, 9, 16, 31, 64, 65, 139}) {
      MatrixView part = x.view();
      part.rows = m;
      const Matrix y = test::product(part, w, DType::f32, o);
      EXPECT_EQ(std::memcmp(y.data<float>(), all.data<float>(),
                            static_cast<std::size_t>(m * n) * sizeof(float)),
                0)
          << dtype_name(in) << ", M = " << m;
    }
  }
}

TEST_P(GemmOnEveryBackend, ReadsStridedRowsAndWritesNothingElse) {
  const std::int64_t m = 11, n = 37, k = 160;
  const PackedWeights w = pack_weights(weights(n, k, 2).view());
  const Matrix wide = make(Fill::gaussian, m, k + 8, 2, DType::bf16);
  MatrixView x = wide.view();
  x.cols = k;
  for (const DType to : kDTypes) {
    Matrix out(to, m, n + 19);
    const auto bytes = static_cast<std::size_t>(out.view().size() * dtype_size(to));
    std::memset(out.data<char>(), 0x5A, bytes);
    MatrixSpan part = out.span();
    part.cols = n;
    test::product_into(x, w, part, {.backend = GetParam()});
    EXPECT_LE(worst_error(x, w, part), 1.0);
    for (std::int64_t r = 0; r < m; ++r)
      for (std::int64_t i = (r * (n + 19) + n) * dtype_size(to);
           i < (r + 1) * (n + 19) * dtype_size(to); ++i)
        ASSERT_EQ(out.data<char>()[i], 0x5A) << r;
  }
}

TEST_P(GemmOnEveryBackend, NaNAndInfinityReachTheirRows) {
  const std::int64_t m = 3, n = 20, k = 64;
  const PackedWeights w = pack_weights(weights(n, k, 4).view());
  for (const DType in : kDTypes) {
    Matrix x = make(Fill::gaussian, m, k, 4, in);
    test::set(x.span(), 1, 17, NAN);
    const Matrix y = test::product(x.view(), w, DType::f32, {.backend = GetParam()});
    for (std::int64_t c = 0; c < n; ++c) {
      EXPECT_TRUE(std::isfinite(y.view().at(0, c)));
      EXPECT_TRUE(std::isnan(y.view().at(1, c)));
      EXPECT_TRUE(std::isfinite(y.view().at(2, c)));
    }
  }
  // Times zero an infinity is NaN, otherwise it stays one.
  for (const DType in : kDTypes)
    for (const std::int64_t rows : {std::int64_t{1}, m, std::int64_t{21}}) {
      Matrix x = make(Fill::gaussian, rows, k, 4, in);
      test::set(x.span(), rows / 2, 17, -INFINITY);
      const Matrix y = test::product(x.view(), w, DType::f32, {.backend = GetParam()});
      const Matrix want = test::product(x.view(), w, DType::f32, {.backend = "reference"});
      for (std::int64_t r = 0; r < rows; ++r)
        for (std::int64_t c = 0; c < n; ++c) {
          ASSERT_EQ(std::fpclassify(y.view().at(r, c)), std::fpclassify(want.view().at(r, c)));
          if (std::isinf(y.view().at(r, c))) {
            ASSERT_EQ(y.view().at(r, c), want.view().at(r, c));
          }
        }
    }
  QuantizedMatrix q = activations(m, k, 4);
  q.scales()[1 * (k / 16) + 2] = E4M3::kNaN;  // poisons the product of its block
  const Matrix y = test::product(q.view(), w, DType::f32, {.backend = GetParam()});
  for (std::int64_t c = 0; c < n; ++c) {
    EXPECT_TRUE(std::isfinite(y.view().at(0, c)));
    EXPECT_TRUE(std::isnan(y.view().at(1, c)));
  }
}

TEST_P(GemmOnEveryBackend, BigSumsAreScaledBeforeTheyAreRounded) {
  // Sums beyond the range of FP16, whose scaled value is far inside.
  const std::int64_t k = 512;
  QuantizedMatrix x({.rows = 1, .cols = k}), w({.rows = 3, .cols = k});
  std::memset(x.codes(), 0x77, static_cast<std::size_t>(x.shape().code_bytes()));
  std::memset(w.codes(), 0x77, static_cast<std::size_t>(w.shape().code_bytes()));
  std::memset(x.scales(), 0x7E, static_cast<std::size_t>(x.shape().scale_bytes()));
  std::memset(w.scales(), 0x7E, static_cast<std::size_t>(w.shape().scale_bytes()));
  x.global_scale()[0] = 0x1p-20f;
  w.global_scale()[0] = 0x1p-10f;
  const Matrix y =
      test::product(x.view(), pack_weights(w.view()), DType::f16, {.backend = GetParam()});
  const float want = static_cast<float>(k) * 2688 * 2688 * 0x1p-30f;
  EXPECT_EQ(y.view().at(0, 2), FP16::from_float(want).to_float());
}

}  // namespace nvfp4::gemm_test
