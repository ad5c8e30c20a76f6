#include "quantizers/error_sum.h"

#include "test_matrices.h"
#include "testing.h"

namespace nvfp4::error_sum_test {

using test::Fill;

/// docs/numerics.md, "The error of a quantized matrix", word by word.
double in_the_order_of_the_law(const std::vector<float>& blocks) {
  double all = 0;
  for (std::size_t group = 0; group < blocks.size(); group += 128) {
    const auto chain = [&](std::size_t j) {
      double sum = 0;
      for (std::size_t n = group + j; n < std::min(group + 128, blocks.size()); n += 32)
        sum += static_cast<double>(blocks[n]);
      return sum;
    };
    // Returns the first of 2^level sums after adding in pairs at half their distance.
    const std::function<double(std::size_t, std::size_t)> tree = [&](std::size_t j,
                                                                     std::size_t step) {
      return step == 32 ? chain(j) : tree(j, step * 2) + tree(j + step, step * 2);
    };
    all += tree(0, 1);
  }
  return all;
}

float block_sum(const std::vector<float>& terms) {
  float s[4] = {0, 0, 0, 0};
  for (std::size_t i = 0; i < terms.size(); ++i) s[i % 4] += terms[i];
  return (s[0] + s[1]) + (s[2] + s[3]);
}

/// Blocks of such different magnitudes that FP64 cannot hold their sum, whose last bits then depend
/// on every step of the order.
TEST(QuantizationError, AddsUpInTheOrderOfTheLaw) {
  for (const BlockAxis axis : {BlockAxis::rows, BlockAxis::columns})
    for (const int block : {16, 32})
      for (const std::int64_t vectors : {1, 37, 300}) {
        SCOPED_TRACE(testing::Message() << "block " << block << " vectors " << vectors);
        const bool rows = axis == BlockAxis::rows;
        const std::int64_t depth = 7 * block;
        Matrix x = test::make(Fill::student, rows ? vectors : depth, rows ? depth : vectors, 5);
        std::mt19937_64 rng(7);
        for (std::int64_t v = 0; v < vectors; ++v)
          for (std::int64_t b = 0; b < 7; ++b) {
            const int exponent = static_cast<int>(rng() % 41);
            for (std::int64_t k = b * block; k < (b + 1) * block; ++k) {
              const std::int64_t r = rows ? v : k, c = rows ? k : v;
              test::set(x.span(), r, c, std::ldexp(x.view().at(r, c), exponent));
            }
          }
        const QuantizedMatrix q =
            quantize(x.view(), {.quantizer = Quantizer::mse, .axis = axis, .block = block});
        const Matrix decoded = dequantize(q.view());
        std::vector<float> errors, norms;
        const std::int64_t across = rows ? 7 : vectors;
        for (std::int64_t n = 0; n < vectors * 7; ++n) {
          const std::int64_t v = rows ? n / across : n % across, b = rows ? n % across : n / across;
          std::vector<float> squares, sizes;
          for (std::int64_t k = b * block; k < (b + 1) * block; ++k) {
            const std::int64_t r = rows ? v : k, c = rows ? k : v;
            const float value = x.view().at(r, c), d = value - decoded.view().at(r, c);
            squares.push_back(d * d);
            sizes.push_back(value * value);
          }
          errors.push_back(block_sum(squares));
          norms.push_back(block_sum(sizes));
        }
        for (const char* backend : {"reference", ""}) {
          const QuantizationError got = quantization_error(x.view(), q.view(), backend);
          EXPECT_EQ(got.squared_error, in_the_order_of_the_law(errors)) << backend;
          EXPECT_EQ(got.squared_norm, in_the_order_of_the_law(norms)) << backend;
        }
      }
}

}  // namespace nvfp4::error_sum_test
