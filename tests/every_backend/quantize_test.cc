#include "nvfp4/quantize.h"

#include "test_matrices.h"
#include "testing.h"

namespace nvfp4::quantize_test {

using test::Fill;
using test::make;

class EveryBackend : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(All, EveryBackend, testing::ValuesIn(test::available_backends()),
                         [](const auto& info) { return test::identifier(info.param); });

struct Case {
  Quantizer quantizer;
  int block;
};
constexpr Case kCases[] = {{Quantizer::max, 16},
                           {Quantizer::four_over_six, 16},
                           {Quantizer::four_over_six, 32},
                           {Quantizer::mse, 16},
                           {Quantizer::mse, 32}};

std::string describe(const QuantizeOptions& o, Fill fill, std::int64_t rows, std::int64_t cols) {
  return std::string(quantizer_name(*o.quantizer)) + " block " + std::to_string(o.block) +
         " fill " + std::to_string(static_cast<int>(fill)) + " [" + std::to_string(rows) + ", " +
         std::to_string(cols) + "] axis " + std::to_string(static_cast<int>(o.axis)) + " scope " +
         std::to_string(static_cast<int>(o.scope)) + " layout " +
         std::string(layout_name(o.layout));
}

void expect_reference_bits(const MatrixView& x, QuantizeOptions options, const std::string& backend,
                           const std::string& what) {
  options.backend = backend;
  const QuantizedMatrix got = quantize(x, options);
  options.backend = "reference";
  const QuantizedMatrix want = quantize(x, options);
  ASSERT_TRUE(got == want) << what;
}

TEST_P(EveryBackend, EveryInputAndDtypeHasReferenceBits) {
  std::uint64_t seed = 0;
  for (const Case& c : kCases)
    for (const Fill fill : test::kFills)
      for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
        for (const BlockAxis axis : {BlockAxis::rows, BlockAxis::columns}) {
          QuantizeOptions o{.quantizer = c.quantizer, .axis = axis, .block = c.block};
          o.scope = ++seed % 3 == 0 ? GlobalScope::vector : GlobalScope::tensor;
          // Crosses vector widths and 128x4 tiles.
          const std::int64_t vectors = 37 + static_cast<std::int64_t>(seed % 5);
          const std::int64_t depth = 32 * (9 + static_cast<std::int64_t>(seed % 4));
          const std::int64_t rows = axis == BlockAxis::rows ? vectors : depth;
          const std::int64_t cols = axis == BlockAxis::rows ? depth : vectors;
          const Matrix x = make(fill, rows, cols, seed, dtype);
          const GlobalScale one;
          if (fill == Fill::saturated) {
            o.scope = GlobalScope::tensor;
            o.global = {&one, 1};
          }
          expect_reference_bits(x.view(), o, GetParam(), describe(o, fill, rows, cols));
          if (HasFatalFailure()) return;
        }
}

TEST_P(EveryBackend, GivesTheReferenceBitsForEveryHalf) {
  const GlobalScale one;
  for (const DType dtype : {DType::bf16, DType::f16})
    for (std::uint64_t seed = 0; seed < 4; ++seed) {
      Matrix x(dtype, 16, 4096);
      auto* bits = x.data<std::uint16_t>();
      std::iota(bits, bits + x.view().size(), std::uint16_t{0});
      // In order: blocks of like magnitudes. NaN is in few of them, else in most.
      if (seed > 0) std::shuffle(bits, bits + x.view().size(), std::mt19937_64(seed));
      for (const bool given : {false, true}) {
        QuantizeOptions o{.quantizer = Quantizer::max};
        if (given) o.global = {&one, 1};
        expect_reference_bits(x.view(), o, GetParam(), "seed " + std::to_string(seed));
        if (HasFatalFailure()) return;
      }
    }
}

TEST_P(EveryBackend, GivesTheReferenceBitsForWeightedMse) {
  std::uint64_t seed = 0;
  for (const Fill fill : test::kFills)
    for (const int block : {16, 32})
      for (const BlockAxis axis : {BlockAxis::rows, BlockAxis::columns}) {
        const std::int64_t depth = 320, vectors = 19;
        const std::int64_t rows = axis == BlockAxis::rows ? vectors : depth;
        const std::int64_t cols = axis == BlockAxis::rows ? depth : vectors;
        const Matrix x = make(fill, rows, cols, ++seed);
        std::mt19937_64 rng(seed);
        std::lognormal_distribution<float> lognormal(0, 2);
        std::vector<float> weights(static_cast<std::size_t>(depth));
        for (float& w : weights) w = rng() % 11 == 0 ? 0.0f : lognormal(rng);
        const QuantizeOptions o{
            .quantizer = Quantizer::mse, .axis = axis, .block = block, .weights = weights};
        expect_reference_bits(x.view(), o, GetParam(), describe(o, fill, rows, cols));
        if (HasFatalFailure()) return;
      }
}

TEST_P(EveryBackend, AnyGlobalScaleHasReferenceBits) {
  std::mt19937_64 rng(123);
  for (int i = 0; i < 300; ++i) {
    const Fill fill = test::kFills[i % std::size(test::kFills)];
    const Matrix x = make(fill, 3, 16 * 40, static_cast<std::uint64_t>(i));
    // Mostly near what the data would ask for, sometimes as far off as is allowed.
    const int exponent =
        i % 4 == 0 ? static_cast<int>(rng() % 200) - 100 : static_cast<int>(rng() % 16) - 8;
    const float m = std::ldexp(1.0f + 0.001f * static_cast<float>(rng() % 1000), exponent);
    const GlobalScale global = GlobalScale::from_multiplier(m);
    for (const Quantizer q : {Quantizer::max, Quantizer::four_over_six, Quantizer::mse}) {
      const QuantizeOptions o{.quantizer = q, .global = {&global, 1}};
      expect_reference_bits(x.view(), o, GetParam(), describe(o, fill, 3, 640));
      if (HasFatalFailure()) return;
    }
  }
}

/// `copies` copies of m, one below the other.
Matrix repeated(const Matrix& m, std::int64_t copies) {
  Matrix all(m.dtype(), copies * m.rows(), m.cols());
  const std::int64_t bytes = m.view().size() * dtype_size(m.dtype());
  for (std::int64_t i = 0; i < copies; ++i)
    std::memcpy(all.data<char>() + i * bytes, m.data<char>(), static_cast<std::size_t>(bytes));
  return all;
}

/// Reports whether `all` consists of repetitions of `part`.
::testing::AssertionResult repeats(const void* all, const void* part, std::int64_t part_bytes,
                                   std::int64_t copies) {
  for (std::int64_t i = 0; i < copies; ++i)
    if (std::memcmp(static_cast<const char*>(all) + i * part_bytes, part,
                    static_cast<std::size_t>(part_bytes)) != 0)
      return ::testing::AssertionFailure() << "copy " << i << " of " << copies << " differs";
  return ::testing::AssertionSuccess();
}

/// Results larger than the caches are stored by other instructions. Rows of 4104 bytes of codes, so
/// that most do not start at a cache line.
TEST_P(EveryBackend, LargeMatricesHaveReferenceBits) {
  if (GetParam() == "reference") return;
  constexpr std::int64_t kCopies = 129, kRows = 32, kCols = 8208;
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const GlobalScope scope : {GlobalScope::tensor, GlobalScope::vector}) {
      const Matrix part = make(Fill::student, kRows, kCols, 11, dtype);
      QuantizeOptions o{.quantizer = Quantizer::max, .scope = scope, .backend = "reference"};
      const QuantizedMatrix want = quantize(part.view(), o);
      o.backend = GetParam();
      const QuantizedMatrix got = quantize(repeated(part, kCopies).view(), o);
      ASSERT_GT(got.shape().code_bytes(), 16 << 20);
      EXPECT_TRUE(repeats(got.codes(), want.codes(), want.shape().code_bytes(), kCopies));
      EXPECT_TRUE(repeats(got.scales(), want.scales(), want.shape().scale_bytes(), kCopies));
      if (scope == GlobalScope::vector) continue;
      const Matrix values = dequantize(got.view(), dtype, GetParam());
      const Matrix want_values = dequantize(want.view(), dtype, "reference");
      EXPECT_TRUE(repeats(values.data<char>(), want_values.data<char>(),
                          want_values.view().size() * dtype_size(dtype), kCopies));
    }
}

// More than a million blocks against the search over all 126 scales, on every target.
void expect_mse_equals_brute_force(std::int64_t rows) {
  constexpr std::int64_t kCols = 16 * 256;
  for (const Fill fill : test::kFills) {
    const Matrix x = make(fill, rows, kCols, 77, DType::f32);
    QuantizeOptions o{.quantizer = Quantizer::mse};
    const GlobalScale one;
    if (fill == Fill::saturated) o.global = {&one, 1};
    o.backend = "reference";
    const QuantizedMatrix want = quantize(x.view(), o);
    for (const std::string& backend : test::available_backends()) {
      o.backend = backend;
      if (backend == "reference") continue;
      ASSERT_TRUE(quantize(x.view(), o) == want)
          << backend << ": " << describe(o, fill, rows, kCols);
    }
  }
}

TEST(Quantize, MseEqualsBruteForce) { expect_mse_equals_brute_force(24); }
TEST(QuantizeSlow, MseEqualsBruteForce) { expect_mse_equals_brute_force(384); }

/// One element clips, the others are on a grid that no larger scale has: the cheapest scale is
/// below the octave that the fast search tries first.
TEST(Quantize, MseFindsScalesThatClipALot) {
  constexpr int kRows = 16, kBlocks = 64, kTop = 64;
  const float scale = E4M3{kTop - 9}.to_float(), largest = 3.501f * E4M3{kTop}.to_float();
  Matrix x(DType::f32, kRows, kBlocks * 16);
  std::mt19937 random(7);
  for (int i = 0; i < kRows * kBlocks * 16; ++i) {
    const float q = random() % 16 == 0 ? 1.5f : random() % 2 == 0 ? 0.5f : 6.0f;
    x.data<float>()[i] = i % 16 == 15 ? largest : q * scale;
  }
  const GlobalScale one;
  QuantizeOptions o{.quantizer = Quantizer::mse, .global = {&one, 1}, .backend = "reference"};
  const QuantizedMatrix want = quantize(x.view(), o);
  EXPECT_GE(std::count(want.scales(), want.scales() + kRows * kBlocks, kTop - 9), 10);
  for (const std::string& backend : test::available_backends()) {
    o.backend = backend;
    EXPECT_TRUE(quantize(x.view(), o) == want) << backend;
  }
}

TEST(Quantize, ThreadsDoNotChangeTheResult) {
  const Matrix x = make(Fill::student, 700, 1040, 9, DType::bf16);
  for (const Quantizer q : {Quantizer::max, Quantizer::mse}) {
    set_threads(1);
    const QuantizedMatrix one = quantize(x.view(), {.quantizer = q});
    const auto error_one = quantization_error(x.view(), one.view());
    set_threads(3);
    EXPECT_TRUE(quantize(x.view(), {.quantizer = q}) == one);
    EXPECT_EQ(quantization_error(x.view(), one.view()).squared_error, error_one.squared_error);
  }
  set_threads(0);
}

TEST(Quantize, EveryByteOfTheOutputIsWritten) {
  const Matrix x = make(Fill::gaussian, 129, 272, 1);
  const QuantizeOptions o{.layout = ScaleLayout::tiled_128x4};
  const QuantizedMatrix want = quantize(x.view(), o);
  QuantizedMatrix poisoned(want.shape());
  std::memset(poisoned.codes(), 0xAA, static_cast<std::size_t>(want.shape().code_bytes()));
  std::memset(poisoned.scales(), 0xAA, static_cast<std::size_t>(want.shape().scale_bytes()));
  quantize_into(x.view(), poisoned.span(), o);
  EXPECT_TRUE(poisoned == want);
}

}  // namespace nvfp4::quantize_test
