#include <gtest/gtest.h>

#include "layers/layer_cases.h"

namespace nvfp4::linear_test {

using test::contains;
using test::Fill;
using test::make;
using test::message_of;
using test::same_bits;
using test::worst_error;

constexpr std::int64_t kN = 37, kK = 144;

QuantizedMatrix quantized_as_columns(const MatrixView& w, GlobalScope scope) {
  return quantize(test::transposed(w).view(), {.axis = BlockAxis::columns, .scope = scope});
}

LinearOptions w4a16() { return {.scheme = Scheme::w4a16}; }

TEST(Linear, TakesDenseWeightsInBothLayouts) {
  for (const DType dtype : {DType::bf16, DType::f16, DType::f32}) {
    const Matrix w = make(Fill::student, kN, kK, 3, dtype);
    const Matrix wt = test::transposed(w.view());
    const PackedWeights packed = pack_weights(w.view(), {.quantizer = Quantizer::mse});
    const Linear rows(w.view(), w4a16()), columns({wt.view(), BlockAxis::columns}, w4a16());
    for (const std::int64_t m : {0, 1, 3, 29})
      for (const DType to : {DType::f32, DType::bf16, DType::f16}) {
        const Matrix x = make(Fill::gaussian, m, kK, 5, dtype);
        const Matrix y = rows.forward(x.view(), to);
        EXPECT_LE(worst_error(x.view(), packed, y.view()), 1.0);
        EXPECT_TRUE(same_bits(y, columns.forward(x.view(), to)));
      }
    EXPECT_EQ(rows.inputs(), kK);
    EXPECT_EQ(columns.outputs(), kN);
  }
}

TEST(Linear, TakesCheckpointWeightsWithAnyGlobalScales) {
  const Matrix w = make(Fill::student, kN, kK, 7, DType::bf16);
  for (const GlobalScope scope : {GlobalScope::tensor, GlobalScope::vector}) {
    const QuantizedMatrix rows = quantize(w.view(), {.scope = scope});
    const QuantizedMatrix columns = quantized_as_columns(w.view(), scope);
    const QuantizedMatrix tiled =
        quantize(w.view(), {.layout = ScaleLayout::tiled_128x4, .scope = scope});
    const PackedWeights packed = pack_weights(rows.view());
    const std::vector<float> bias = test::random_floats(kN, 1);
    LinearOptions options = w4a16();
    options.bias = bias;
    for (const std::int64_t m : {1, 6, 33}) {
      const Matrix x = make(Fill::laplace, m, kK, 9, DType::bf16);
      const Matrix y = Linear(rows.view(), options).forward(x.view(), DType::f32);
      EXPECT_LE(worst_error(x.view(), packed, y.view(), 1, bias), 1.0);
      EXPECT_TRUE(same_bits(y, Linear(columns.view(), options).forward(x.view(), DType::f32)));
      EXPECT_TRUE(same_bits(y, Linear(tiled.view(), options).forward(x.view(), DType::f32)));
    }
  }
}

TEST(Linear, GivesEachRowItsOwnGlobalScale) {
  const QuantizedMatrix q = test::uneven_weights(kN, kK, 11);
  const PackedWeights packed = pack_weights(q.view());
  const Matrix x = make(Fill::gaussian, 9, kK, 4, DType::bf16);
  for (const Scheme scheme : {Scheme::w4a4, Scheme::w4a16}) {
    const Linear linear(q.view(), {.scheme = scheme});
    const Matrix y = linear.forward(x.view(), DType::f32);
    if (scheme == Scheme::w4a4) {
      const QuantizedActivation a = linear.quantize(x.view());
      EXPECT_LE(worst_error(a.view(), packed, y.view()), 1.0);
    } else {
      EXPECT_LE(worst_error(x.view(), packed, y.view()), 1.0);
    }
  }
}

TEST(Linear, JoinsWeightsThatKeepTheirGlobalScales) {
  const Matrix x = make(Fill::gaussian, 5, kK, 4, DType::bf16);
  const Matrix dense = make(Fill::gaussian, 19, kK, 21, DType::bf16);
  const QuantizedMatrix a = test::weights(kN, kK, 2), b = test::weights(6, kK, 3),
                        c = test::uneven_weights(21, kK, 4);
  const WeightView parts[] = {a.view(), b.view(), c.view(), dense.view()};
  for (const Scheme scheme : {Scheme::w4a4, Scheme::w4a16}) {
    const LinearOptions options{.scheme = scheme, .batch_invariant = true};
    const Matrix y = Linear(parts, options).forward(x.view(), DType::f32);
    std::int64_t first = 0;
    for (const WeightView& part : parts) {
      const Matrix own = Linear(part, options).forward(x.view(), DType::f32);
      for (std::int64_t m = 0; m < 5; ++m)
        for (std::int64_t n = 0; n < own.cols(); ++n)
          ASSERT_EQ(y.view().at(m, first + n), own.view().at(m, n)) << first << " + " << n;
      first += own.cols();
    }
    EXPECT_EQ(first, y.cols());
  }
  // A global scale that all share stays one.
  EXPECT_EQ(pack_weights(std::vector{a.view(), a.view()}).shape().scope, GlobalScope::tensor);
  EXPECT_EQ(pack_weights(std::vector{a.view(), b.view()}).shape().scope, GlobalScope::vector);
}

/// The layer's codes, scales and global scales are those of quantize() with `options`, and the
/// product that of these bytes.
void expect_input(const Linear& linear, const PackedWeights& packed, const MatrixView& x,
                  const QuantizeOptions& options) {
  const QuantizedMatrix want = quantize(x, options);
  const QuantizedActivation a = linear.quantize(x);
  ASSERT_EQ(a.view().shape, want.shape());
  const auto same = [](const void* p, const void* q, std::int64_t bytes) {
    return std::memcmp(p, q, static_cast<std::size_t>(bytes)) == 0;
  };
  EXPECT_TRUE(same(a.view().codes, want.codes(), want.shape().code_bytes()));
  EXPECT_TRUE(same(a.view().scales, want.scales(), want.shape().scale_bytes()));
  EXPECT_TRUE(same(a.view().global_scale, want.global_scale(), 4 * want.shape().global_count()));
  const Matrix y = linear.forward(x, DType::f32);
  EXPECT_LE(worst_error(want.view(), packed, y.view()), 1.0);
  EXPECT_TRUE(same_bits(y, test::product(want.view(), packed)));
  EXPECT_TRUE(same_bits(y, linear.forward(a, DType::f32)));
}

TEST(Linear, QuantizesItsInputAsItIsTold) {
  const QuantizedMatrix q = test::weights(kN, kK, 2);
  const PackedWeights packed = pack_weights(q.view());
  const Matrix sample = make(Fill::laplace, 64, kK, 8, DType::bf16);
  const GlobalScale given = GlobalScale::from_multiplier(0.0125f),
                    other = GlobalScale::from_divisor(31.0f);
  WeightView stored(q.view()), louder(q.view());
  stored.input_scale = given;
  louder.input_scale = other;  // the larger multiplier
  for (const Quantizer quantizer : {Quantizer::max, Quantizer::four_over_six, Quantizer::mse})
    for (const std::int64_t m : {1, 26}) {
      const Matrix x = make(Fill::gaussian, m, kK, 12, DType::bf16);
      const auto linear = [&](const WeightView& w, const ActivationScale& scale) {
        return Linear(w, {.activation = scale, .activation_quantizer = quantizer});
      };
      const QuantizeOptions row{.quantizer = quantizer, .scope = GlobalScope::vector};
      expect_input(linear(q.view(), {}), packed, x.view(), row);
      expect_input(linear(q.view(), ActivationScale::measured()), packed, x.view(), row);
      expect_input(linear(stored, ActivationScale::measured()), packed, x.view(), row);
      expect_input(linear(q.view(), ActivationScale::measured(GlobalScope::tensor)), packed,
                   x.view(), {.quantizer = quantizer});
      expect_input(linear(stored, ActivationScale::fixed(other)), packed, x.view(),
                   {.quantizer = quantizer, .global = {&other, 1}});
      expect_input(linear(stored, {}), packed, x.view(),
                   {.quantizer = quantizer, .global = {&given, 1}});
      const GlobalScale calibrated = GlobalScale::from_amax(amax(sample.view()), quantizer);
      expect_input(linear(stored, ActivationScale::calibrated(sample.view(), quantizer)), packed,
                   x.view(), {.quantizer = quantizer, .global = {&calibrated, 1}});
      const WeightView parts[] = {stored, louder};
      const Linear both(parts, {.activation_quantizer = quantizer});
      EXPECT_EQ(both.quantize(x.view()).view().global_of(0), other.multiplier);
    }
}

TEST(Linear, TheBoundSeesOneWrongScale) {
  const QuantizedMatrix q = test::weights(kN, kK, 2);
  const PackedWeights packed = pack_weights(q.view());
  const Matrix x = make(Fill::gaussian, 4, kK, 12, DType::bf16);
  QuantizedMatrix wrong = to_device(q.view(), {});
  wrong.scales()[5 * (kK / 16) + 3] ^= 1;
  const Matrix y = Linear(wrong.view(), w4a16()).forward(x.view(), DType::f32);
  EXPECT_GT(worst_error(x.view(), packed, y.view()), 10.0);
}

TEST(Linear, SharesOneQuantizedActivation) {
  const QuantizedMatrix q = test::weights(kN, kK, 2), r = test::weights(50, kK, 3);
  const Linear a(q.view()), b(r.view());
  const Matrix x = make(Fill::gaussian, 7, kK, 12, DType::bf16);
  const std::vector<float> norm(kK, 1.5f);
  const QuantizedActivation shared = rms_norm_quantize(x.view(), norm);
  EXPECT_TRUE(same_bits(a.forward(shared, DType::f32),
                        test::product(shared.view(), pack_weights(q.view()))));
  EXPECT_TRUE(same_bits(b.forward(shared, DType::f32),
                        test::product(shared.view(), pack_weights(r.view()))));
}

TEST(Linear, DoesNotDependOnThreadsOrCallers) {
  const QuantizedMatrix q = test::uneven_weights(kN, kK, 2);
  const Matrix x = make(Fill::gaussian, 70, kK, 12, DType::bf16);
  for (const Scheme scheme : {Scheme::w4a4, Scheme::w4a16}) {
    const Linear linear(q.view(), {.scheme = scheme, .max_tokens = 70});
    test::expect_independent_of_threads([&] { return linear.forward(x.view()); });
    // Memory that stays from a larger input must not show.
    MatrixView few = x.view();
    few.rows = 3;
    EXPECT_TRUE(same_bits(linear.forward(few), Linear(q.view(), {.scheme = scheme}).forward(few)));
  }
}

TEST(Linear, NamesWhatIsWrong) {
  const QuantizedMatrix q = test::weights(kN, kK, 2);
  const Matrix x = make(Fill::gaussian, 5, kK, 12), narrow = make(Fill::gaussian, 5, 32, 12);
  Matrix out(DType::f32, 5, kN);
  const Linear linear(q.view(), {.max_tokens = 4}), weights_only(q.view(), w4a16());
  EXPECT_TRUE(contains(message_of<ShapeError>([&] { linear.forward(x.view()); }),
                       "x.rows = 5, must be at most max_tokens = 4"));
  EXPECT_TRUE(contains(
      message_of<ShapeError>([&] { Linear(q.view()).forward_into(narrow.view(), out.span()); }),
      "x.cols = 32"));
  EXPECT_THROW(weights_only.forward_into(narrow.view(), out.span()), ShapeError);
  EXPECT_THROW(weights_only.quantize(x.view()), ValueError);
  EXPECT_THROW(weights_only.forward(Linear(q.view()).quantize(x.view())), ValueError);
  EXPECT_THROW(Linear().inputs(), ValueError);
  EXPECT_THROW(Linear{WeightView()}, ShapeError);
  EXPECT_THROW(Linear(std::span<const WeightView>()), ShapeError);
  EXPECT_THROW(Linear(make(Fill::gaussian, 4, 40, 1).view()), ShapeError);
  const float short_bias[] = {1, 2, 3};
  EXPECT_TRUE(contains(message_of<ShapeError>([&] { Linear(q.view(), {.bias = short_bias}); }),
                       "bias has 3 elements"));
  EXPECT_TRUE(contains(message_of<UnsupportedError>([&] { Linear(q.view(), {.autotune = true}); }),
                       "autotune = true, must be false on cpu"));
  EXPECT_TRUE(contains(
      message_of<UnsupportedError>([&] { Linear(q.view(), {.device = Device::cuda(1000)}); }),
      "cuda:1000"));
  const QuantizedMatrix deeper = test::weights(kN, kK + 16, 2);
  const WeightView parts[] = {q.view(), deeper.view()};
  EXPECT_THROW((Linear(parts)), ShapeError);
  QuantizedMatrix bad = to_device(q.view(), {});
  bad.scales()[17] = 0xC0;
  WeightView named(bad.view());
  named.name = "layer.o_proj.weight";
  const std::string message = message_of<ValueError>([&] { Linear{named}; });
  EXPECT_TRUE(contains(message, "layer.o_proj.weight") && contains(message, "0xC0")) << message;
  EXPECT_THROW(ActivationScale::fixed(GlobalScale::from_multiplier(0)), ValueError);
}

}  // namespace nvfp4::linear_test
