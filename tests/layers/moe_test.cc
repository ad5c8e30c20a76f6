#include <gtest/gtest.h>

#include "layers/moe_cases.h"

namespace nvfp4::moe_test {

using test::contains;
using test::Fill;
using test::make;
using test::message_of;
using test::MoeCase;
using test::run;
using test::same_bits;

constexpr std::int64_t kK = 80, kI = 48;
constexpr float kNone = std::numeric_limits<float>::infinity();

class MoeOnEveryBackend : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(, MoeOnEveryBackend, testing::ValuesIn(test::available_backends()),
                         [](const auto& p) { return test::identifier(p.param); });

TEST_P(MoeOnEveryBackend, W4A4HasTheBitsOfSingleTokens) {
  for (const std::int64_t tokens : {0, 1, 21})
    for (const bool rows : {false, true})
      for (const float limit : {kNone, 0.75f}) {
        const MoeCase c(tokens, kK, kI, rows);
        const Matrix x = make(Fill::gaussian, tokens, kK, 2, DType::bf16);
        const Moe moe = c.moe({.swiglu_limit = limit, .backend = GetParam()});
        const QuantizedActivation a = moe.quantize(x.view());
        EXPECT_EQ(a.view().shape.scope, GlobalScope::vector);
        const Matrix want = test::naive_moe(c, a.view(), limit, [](std::int64_t) {
          return QuantizeOptions{.scope = GlobalScope::vector};
        });
        EXPECT_TRUE(same_bits(run(moe, x.view(), c.routing()), want));
        EXPECT_TRUE(same_bits(run(moe, a, c.routing()), want));
      }
}

TEST_P(MoeOnEveryBackend, W4A16IsWithinFloat64Bounds) {
  for (const std::int64_t tokens : {1, 5, 23})
    for (const bool rows : {false, true})
      for (const DType in : {DType::bf16, DType::f32, DType::f16}) {
        const float limit = rows ? 0.5f : kNone;
        const DType intermediate = in == DType::f32 ? DType::f32 : DType::bf16;
        const MoeCase c(tokens, kK, kI, rows);
        const Matrix x = make(Fill::gaussian, tokens, kK, 2, in);
        const Moe moe = c.moe({.scheme = Scheme::w4a16,
                               .swiglu_limit = limit,
                               .intermediate = intermediate,
                               .backend = GetParam()});
        for (const DType to : {DType::f32, DType::bf16}) {
          const Matrix y = run(moe, x.view(), c.routing(), to);
          EXPECT_LE(test::worst_moe_error(c, x.view(), y.view(), limit, intermediate), 1.0)
              << tokens << " tokens, x " << dtype_name(in) << ", out " << dtype_name(to);
        }
      }
}

TEST_P(MoeOnEveryBackend, W4A16HasTheBitsOfSingleTokens) {
  for (const DType in : {DType::bf16, DType::f16})
    for (const DType intermediate : {DType::bf16, DType::f32}) {
      const MoeCase c(13, kK, kI, true);
      const Matrix x = make(Fill::gaussian, 13, kK, 2, in);
      const MoeOptions options{.scheme = Scheme::w4a16,
                               .swiglu_limit = 3,
                               .intermediate = intermediate,
                               .batch_invariant = true,
                               .backend = GetParam()};
      EXPECT_TRUE(same_bits(run(c.moe(options), x.view(), c.routing()),
                            test::naive_moe(c, x.view(), options)));
    }
}

TEST(Moe, AddsAnyNumberOfSharedExperts) {
  for (const std::size_t shared : {0u, 2u, 3u}) {
    const MoeCase c(7, kK, kI, false, 6, shared);
    const Matrix x = make(Fill::gaussian, 7, kK, 2, DType::bf16);
    const Moe moe = c.moe({});
    EXPECT_EQ(moe.shared_experts(), static_cast<std::int64_t>(shared));
    const QuantizedActivation a = moe.quantize(x.view());
    EXPECT_TRUE(
        same_bits(run(moe, a, c.routing()), test::naive_moe(c, a.view(), kNone, [](std::int64_t) {
                    return QuantizeOptions{.scope = GlobalScope::vector};
                  })));
    const MoeOptions options{.scheme = Scheme::w4a16, .batch_invariant = true};
    EXPECT_TRUE(same_bits(run(c.moe(options), x.view(), c.routing()),
                          test::naive_moe(c, x.view(), options)));
  }
}

// Their rows go through the experts 256 MiB at a time: here 174762 tokens.
TEST(Moe, TakesMoreTokensThanOnePass) {
  const std::int64_t k = 16, top_k = 8, tokens = 174762 + 40, some = 60;
  MoeCase c(0, k, 16);
  c.top_k = top_k;
  std::mt19937_64 rng(3);
  for (std::int64_t i = 0; i < tokens * top_k; ++i)
    c.ids.push_back(static_cast<std::int64_t>(rng() % 6));
  c.weights = test::random_floats(c.ids.size(), 4);
  const Matrix x = make(Fill::gaussian, tokens, k, 2, DType::bf16);
  const Moe moe = c.moe({});
  const Matrix all = run(moe, x.view(), c.routing());
  for (const std::int64_t first : {std::int64_t{0}, tokens - some}) {
    MatrixView part = x.view();
    part.data = x.data<BF16>() + first * k;
    part.rows = some;
    Routing routing = c.routing();
    routing.ids = c.ids.data() + first * top_k;
    routing.weights = c.weights.data() + first * top_k;
    routing.rows = some;
    const Matrix y = run(moe, part, routing);
    EXPECT_EQ(std::memcmp(y.data<float>(), all.data<float>() + first * k,
                          static_cast<std::size_t>(some * k) * sizeof(float)),
              0)
        << first;
  }
}

TEST(Moe, BoundFindsWrongScalesWeightsAndExperts) {
  const MoeCase c(4, kK, kI);
  const Matrix x = make(Fill::gaussian, 4, kK, 2, DType::f32);
  const MoeOptions options{.scheme = Scheme::w4a16, .intermediate = DType::f32};
  const auto error = [&](const MoeCase& wrong) {
    const Matrix y = run(wrong.moe(options), x.view(), wrong.routing());
    return test::worst_moe_error(c, x.view(), y.view(), kNone, DType::f32);
  };
  EXPECT_LE(error(MoeCase(4, kK, kI)), 0.1);
  MoeCase scale(4, kK, kI), weight(4, kK, kI), swapped(4, kK, kI), down(4, kK, kI);
  scale.routed[static_cast<std::size_t>(c.ids[4])].up.scales()[7] ^= 1;
  down.shared[0].down.scales()[3] ^= 1;
  weight.weights[5] *= 1.001f;
  swapped.ids[0] = (c.ids[0] + 1) % 4;
  EXPECT_GT(error(scale), 5.0);
  EXPECT_GT(error(down), 5.0);
  EXPECT_GT(error(weight), 5.0);
  EXPECT_GT(error(swapped), 1000.0);
}

TEST(Moe, QuantizesWithTheScalesOfTheCheckpoint) {
  MoeCase c(9, kK, kI);
  for (std::size_t e = 0; e < c.routed.size(); ++e) {
    c.routed[e].input_scale = GlobalScale::from_multiplier(0.001f * static_cast<float>(e + 1));
    c.routed[e].down_scale = GlobalScale::from_divisor(300.0f / static_cast<float>(e + 1));
  }
  c.shared[0].input_scale = GlobalScale::from_multiplier(0.004f);
  c.shared[0].down_scale = GlobalScale::from_multiplier(0.02f);
  const Matrix x = make(Fill::gaussian, 9, kK, 2, DType::bf16);
  const Moe moe = c.moe({});
  const QuantizedActivation a = moe.quantize(x.view());
  EXPECT_EQ(a.view().shape.scope, GlobalScope::tensor);
  EXPECT_EQ(a.view().global_of(0), 0.006f);  // the largest of all
  const auto stored = [&](std::int64_t e) {
    const auto& owner = e < 0 ? c.shared[0] : c.routed[static_cast<std::size_t>(e)];
    return QuantizeOptions{.scope = GlobalScope::tensor, .global = {&*owner.down_scale, 1}};
  };
  EXPECT_TRUE(
      same_bits(run(moe, x.view(), c.routing()), test::naive_moe(c, a.view(), kNone, stored)));

  const GlobalScale given = GlobalScale::from_multiplier(0.03f);
  const Moe fixed = c.moe({.activation = ActivationScale::measured(),
                           .down_activation = ActivationScale::fixed(given)});
  const QuantizedActivation b = fixed.quantize(x.view());
  EXPECT_EQ(b.view().shape.scope, GlobalScope::vector);
  EXPECT_TRUE(same_bits(run(fixed, x.view(), c.routing()),
                        test::naive_moe(c, b.view(), kNone, [&](std::int64_t) {
                          return QuantizeOptions{.global = {&given, 1}};
                        })));
}

TEST(Moe, TakesTensorWideScalesMeasuredAtRunTime) {
  const MoeCase c(9, kK, kI, false, 6, 0);
  const Matrix x = make(Fill::gaussian, 9, kK, 2, DType::bf16);
  const Moe moe = c.moe({.activation = ActivationScale::measured(GlobalScope::tensor),
                         .down_activation = ActivationScale::measured(GlobalScope::tensor)});
  const QuantizedActivation a = moe.quantize(x.view());
  EXPECT_EQ(a.view().global_of(0),
            GlobalScale::from_amax(amax(x.view()), Quantizer::max).multiplier);
  // The largest magnitude of what goes into the downs.
  float largest = 0;
  test::naive_moe(c, a.view(), kNone, [&](std::int64_t) { return QuantizeOptions{}; });
  for (std::int64_t t = 0; t < 9; ++t)
    for (std::int64_t k = 0; k < c.top_k; ++k) {
      const auto& e =
          c.routed[static_cast<std::size_t>(c.ids[static_cast<std::size_t>(t * 3 + k)])];
      const QuantizedMatrix row = test::row_of(a.view(), t);
      const std::vector<QuantizedView> parts = {e.gate.view(), e.up.view()};
      const Matrix both = test::product(row.view(), pack_weights(parts));
      Matrix h(DType::f32, 1, kI);
      swiglu_into(both.view(), h.span());
      largest = std::max(largest, amax(h.view()));
    }
  const GlobalScale scale = GlobalScale::from_amax(largest, Quantizer::max);
  EXPECT_TRUE(same_bits(run(moe, x.view(), c.routing()),
                        test::naive_moe(c, a.view(), kNone, [&](std::int64_t) {
                          return QuantizeOptions{.global = {&scale, 1}};
                        })));
}

TEST(Moe, DoesNotDependOnThreadsOrOtherTokens) {
  const MoeCase c(130, kK, kI, true, 6, 2);
  const Matrix x = make(Fill::gaussian, 130, kK, 2, DType::bf16);
  for (const Scheme scheme : {Scheme::w4a4, Scheme::w4a16}) {
    const Moe moe =
        c.moe({.scheme = scheme, .batch_invariant = true, .max_tokens = 130, .max_top_k = 3});
    test::expect_independent_of_threads([&] { return run(moe, x.view(), c.routing()); });
    const Matrix all = run(moe, x.view(), c.routing(), DType::bf16);
    const Moe fresh = c.moe({.scheme = scheme, .batch_invariant = true});
    for (const std::int64_t t : {0, 63, 129}) {
      MatrixView one = x.view();
      one.data = x.data<BF16>() + t * kK;
      one.rows = 1;
      Routing routing = c.routing();
      routing.ids = c.ids.data() + t * c.top_k;
      routing.weights = c.weights.data() + t * c.top_k;
      routing.rows = 1;
      const Matrix y = run(fresh, one, routing, DType::bf16);
      EXPECT_EQ(std::memcmp(y.data<BF16>(), all.data<BF16>() + t * kK, 2 * kK), 0) << t;
    }
  }
}

TEST(Moe, TakesIdsOfAnyTypeWithStrides) {
  const MoeCase c(7, kK, kI);
  const Matrix x = make(Fill::gaussian, 7, kK, 2, DType::bf16);
  const Moe moe = c.moe({});
  const Matrix want = run(moe, x.view(), c.routing());
  std::vector<std::uint8_t> ids(7 * 5, 255);
  std::vector<float> weights(7 * 4, NAN);
  for (std::size_t t = 0; t < 7; ++t)
    for (std::size_t k = 0; k < 3; ++k) {
      ids[t * 5 + k] = static_cast<std::uint8_t>(c.ids[t * 3 + k]);
      weights[t * 4 + k] = c.weights[t * 3 + k];
    }
  Routing routing{.ids = ids.data(),
                  .id_type = IndexType::u8,
                  .id_stride = 5,
                  .weights = weights.data(),
                  .weight_stride = 4,
                  .rows = 7,
                  .top_k = 3};
  EXPECT_TRUE(same_bits(run(moe, x.view(), routing), want));
  routing.top_k = 0;  // the shared experts alone
  MoeCase none(7, kK, kI);
  none.weights.assign(none.weights.size(), 0.0f);
  EXPECT_EQ(run(moe, x.view(), routing).view().at(3, 5),
            run(moe, x.view(), none.routing()).view().at(3, 5));
}

TEST(Moe, NamesWhatIsWrong) {
  MoeCase c(4, kK, kI);
  const Matrix x = make(Fill::gaussian, 4, kK, 2, DType::bf16);
  const Moe moe = c.moe({});
  Matrix y(DType::f32, 4, kK);
  for (const std::int64_t bad : {std::int64_t{-1}, std::int64_t{6}, std::int64_t{1} << 40}) {
    c.ids[7] = bad;
    const std::string message =
        message_of<ValueError>([&] { moe.forward_into(x.view(), c.routing(), y.span()); });
    EXPECT_TRUE(contains(message, "token 2, choice 1 = " + std::to_string(bad))) << message;
    for (std::int64_t i = 0; i < 4 * kK; ++i) ASSERT_EQ(y.data<float>()[i], 0.0f);
  }
  c.ids[7] = 0;
  const auto forward = [&](const Moe& m, const MatrixView& in, const Routing& routing) {
    m.forward_into(in, routing, y.span());
  };
  MatrixView few = x.view(), narrow = x.view();
  few.rows = 3;
  narrow.cols = 64;
  EXPECT_THROW(forward(moe, few, c.routing()), ShapeError);
  EXPECT_THROW(forward(moe, narrow, c.routing()), ShapeError);
  Routing routing = c.routing();
  routing.ids = nullptr;
  EXPECT_THROW(forward(moe, x.view(), routing), ShapeError);
  EXPECT_THROW(forward(c.moe({.max_tokens = 3}), x.view(), c.routing()), ShapeError);
  EXPECT_THROW(forward(c.moe({.max_tokens = 9, .max_top_k = 2}), x.view(), c.routing()),
               ShapeError);
  EXPECT_THROW(c.moe({.swiglu_limit = 0}), ValueError);
  EXPECT_THROW(c.moe({.swiglu_limit = NAN}), ValueError);
  EXPECT_THROW(c.moe({.device = Device::cuda(1000)}), UnsupportedError);
  EXPECT_THROW(c.moe({.autotune = true}), UnsupportedError);
  EXPECT_THROW(Moe().experts(), ValueError);
  EXPECT_THROW(Moe(std::span<const ExpertWeights>()), ShapeError);
  const Moe weights_only = c.moe({.scheme = Scheme::w4a16});
  EXPECT_THROW(weights_only.quantize(x.view()), ValueError);
  EXPECT_THROW(weights_only.forward_into(moe.quantize(x.view()), c.routing(), y.span()),
               ValueError);
  const QuantizedActivation tiled =
      quantize_activation(x.view(), {.layout = ScaleLayout::tiled_128x4});
  EXPECT_THROW(moe.forward_into(tiled, c.routing(), y.span()), ShapeError);
  c.routed[3].up = test::weights(kI + 1, kK, 1);
  EXPECT_TRUE(contains(message_of<ShapeError>([&] { c.moe({}); }), "[49, 80]"));
}

}  // namespace nvfp4::moe_test
