// Layers on Hopper: within the bounds of FP64 computations, and with the bits of their parts.
#include "cuda/gpu_layers.h"

namespace nvfp4::layers_test {

using test::kGpu;
using test::make;
using test::message_of;
using test::MoeCase;
using test::on_gpu;
using test::PlacedRouting;
using test::run_on_gpu;
using test::same_bits;
using Fill = test::Fill;

constexpr float kNone = std::numeric_limits<float>::infinity();

class CudaLayers : public test::OnHopper {};

struct Shape {
  std::int64_t n, k;
};

TEST_F(CudaLayers, LinearIsWithinTheBoundsOfItsProduct) {
  for (const Shape& s : {Shape{53, 80}, Shape{136, 192}})
    for (const Scheme scheme : {Scheme::w4a4, Scheme::w4a16})
      for (const DType in : {DType::bf16, DType::f16}) {
        const QuantizedMatrix a = test::weights(s.n, s.k, 3),
                              b = test::weights(17, s.k, 4, GlobalScope::vector);
        const QuantizedMatrix w = test::stacked(a.view(), b.view());
        const std::vector<float> bias = test::random_floats(static_cast<std::size_t>(s.n + 17), 9);
        const WeightView parts[] = {a.view(), b.view()};
        const Linear linear(
            parts, on_gpu(LinearOptions{.scheme = scheme, .bias = bias, .max_tokens = 130}));
        EXPECT_EQ(linear.outputs(), s.n + 17);
        for (const std::int64_t m : {0, 1, 7, 33, 130})
          for (const DType out : {DType::f32, DType::bf16}) {
            const Matrix x = make(Fill::laplace, m, s.k, 7, in);
            const Matrix there = to_device(x.view(), kGpu);
            const Matrix y = run_on_gpu(linear, there.view(), m, out);
            EXPECT_TRUE(same_bits(y, run_on_gpu(linear, there.view(), m, out)));
            if (scheme == Scheme::w4a16) {
              EXPECT_LE(test::worst_tensor_core_error(x.view(), w.view(), y.view(), 1, bias), 1.0);
              continue;
            }
            const QuantizedActivation q = linear.quantize(there.view());
            synchronize(kGpu);
            const QuantizedMatrix codes = to_device(q.view(), {});
            EXPECT_EQ(codes, quantize(x.view(),
                                      {.quantizer = Quantizer::max, .scope = GlobalScope::vector}));
            EXPECT_LE(test::worst_tensor_core_error(codes.view(), w.view(), y.view(), 1, bias),
                      1.0);
            EXPECT_TRUE(same_bits(y, run_on_gpu(linear, q, m, out)));
          }
      }
}

TEST_F(CudaLayers, LinearQuantizesItsInputAsItIsTold) {
  const QuantizedMatrix q = test::weights(40, 96, 2);
  const Matrix x = make(Fill::gaussian, 21, 96, 5, DType::bf16);
  const Matrix there = to_device(x.view(), kGpu);
  const GlobalScale given = GlobalScale::from_multiplier(0.0125f);
  WeightView stored(q.view());
  stored.input_scale = given;
  const auto expect = [&](const WeightView& w, const ActivationScale& scale,
                          const QuantizeOptions& options) {
    const Linear linear(w, on_gpu(LinearOptions{.activation = scale}));
    const QuantizedMatrix codes = quantize(x.view(), options);
    EXPECT_LE(test::worst_tensor_core_error(codes.view(), q.view(),
                                            run_on_gpu(linear, there.view(), 21).view()),
              1.0);
  };
  expect(q.view(), {}, {.quantizer = Quantizer::max, .scope = GlobalScope::vector});
  expect(stored, {}, {.quantizer = Quantizer::max, .global = {&given, 1}});
  expect(stored, ActivationScale::measured(GlobalScope::tensor), {.quantizer = Quantizer::max});
  expect(q.view(), ActivationScale::fixed(given),
         {.quantizer = Quantizer::max, .global = {&given, 1}});
}

/// Columns [col, col + cols) of a matrix.
MatrixView columns(MatrixView m, std::int64_t col, std::int64_t cols) {
  m.data = static_cast<const char*>(m.data) + col * dtype_size(m.dtype);
  m.cols = cols;
  return m;
}

TEST_F(CudaLayers, GroupedLinearIsWithinItsBounds) {
  constexpr std::int64_t kG = 5, kN = 24, kK = 80;
  std::vector<QuantizedMatrix> w;
  std::vector<WeightView> views;
  for (std::uint64_t g = 0; g < kG; ++g) w.push_back(test::weights(kN, kK, g + 1));
  for (const QuantizedMatrix& q : w) views.emplace_back(q.view());
  const std::vector<float> bias = test::random_floats(kG * kN, 9);
  const auto bias_of = [&](std::int64_t g) {
    return std::span(bias).subspan(static_cast<std::size_t>(g * kN), kN);
  };
  const GroupedLinear linear(
      views, on_gpu(LinearOptions{.scheme = Scheme::w4a16, .bias = bias, .max_tokens = 70}));
  const GroupedLinear w4a4(
      views, on_gpu(LinearOptions{.bias = bias, .batch_invariant = true, .max_tokens = 70}));
  EXPECT_EQ(linear.weight_bytes(), kG * 2 * PackedStorage::kTileBytes);
  for (const std::int64_t t : {1, 9, 70}) {
    for (const bool shared : {false, true}) {
      const Matrix x = make(Fill::gaussian, t, shared ? kK : kG * kK, 7, DType::bf16);
      const Matrix there = to_device(x.view(), kGpu);
      test::Placed y = test::poisoned(DType::f32, t, kG * kN, kG * kN, kGpu);
      linear.forward_into(there.view(), y.span);
      synchronize(kGpu);
      const Matrix got = to_device(y.span, {});
      for (std::int64_t g = 0; g < kG; ++g)
        EXPECT_LE(test::worst_tensor_core_error(columns(x.view(), shared ? 0 : g * kK, kK),
                                                w[static_cast<std::size_t>(g)].view(),
                                                columns(got.view(), g * kN, kN), 1, bias_of(g)),
                  1.0);
    }
    // Groups 1 and 4 are empty, the last rows belong to none.
    const auto n = static_cast<std::int32_t>(t);
    const test::Array<std::int32_t> ends({n / 3, n / 3, n / 2, n - n / 4, n - n / 4}, kGpu);
    const std::int32_t starts[] = {0, n / 3, n / 3, n / 2, n - n / 4, n - n / 4};
    const Matrix x = make(Fill::gaussian, t, kK, 8, DType::bf16);
    const Matrix there = to_device(x.view(), kGpu);
    test::Placed y = test::poisoned(DType::f32, t, kN, kN, kGpu);
    test::Placed z = test::poisoned(DType::f32, t, kN, kN, kGpu);
    linear.forward_rows_into(there.view(), ends.span(), y.span);
    w4a4.forward_rows_into(there.view(), ends.span(), z.span);
    const QuantizedActivation q = w4a4.quantize(there.view());
    synchronize(kGpu);
    const Matrix got = to_device(y.span, {}), got_w4a4 = to_device(z.span, {});
    const QuantizedMatrix codes = to_device(q.view(), {});
    const auto rows = [](MatrixView m, std::int32_t from, std::int32_t to) {
      m.data = static_cast<const char*>(m.data) + from * m.stride * dtype_size(m.dtype);
      m.rows = to - from;
      return m;
    };
    for (std::size_t g = 0; g < kG; ++g) {
      const std::int32_t from = starts[g], to = starts[g + 1];
      const auto group = static_cast<std::int64_t>(g);
      EXPECT_LE(test::worst_tensor_core_error(rows(x.view(), from, to), w[g].view(),
                                              rows(got.view(), from, to), 1, bias_of(group)),
                1.0);
      for (std::int32_t r = from; r < to; ++r)
        EXPECT_LE(test::worst_tensor_core_error(QuantizedView(test::row_of(codes.view(), r).view()),
                                                w[g].view(), rows(got_w4a4.view(), r, r + 1), 1,
                                                bias_of(group)),
                  1.0);
    }
    for (std::int64_t r = starts[kG]; r < t; ++r)
      for (std::int64_t c = 0; c < kN; ++c) {
        std::uint32_t bits;
        std::memcpy(&bits, got.data<float>() + r * kN + c, 4);
        EXPECT_EQ(bits, 0xAAAAAAAAu);
      }
  }
}

constexpr std::int64_t kK = 80, kI = 48;

TEST_F(CudaLayers, MoeW4A16IsWithinFloat64Bounds) {
  for (const std::int64_t tokens : {1, 5, 23, 401})  // 401: several blocks order the rows
    for (const bool rows : {false, true})
      for (const DType in : {DType::bf16, DType::f16}) {
        const float limit = rows ? 0.5f : kNone;
        const MoeCase c(tokens, kK, kI, rows, 6, rows ? 2 : 1);
        const Matrix x = make(Fill::gaussian, tokens, kK, 2, in);
        const Matrix there = to_device(x.view(), kGpu);
        const PlacedRouting routing(c);
        const Moe moe = c.moe(on_gpu(MoeOptions{.scheme = Scheme::w4a16,
                                                .swiglu_limit = limit,
                                                .intermediate = in,
                                                .max_tokens = rows ? tokens : 0,
                                                .max_top_k = 3}));
        for (const DType to : {DType::f32, DType::bf16}) {
          const Matrix y = run_on_gpu(moe, there.view(), routing.routing, to);
          EXPECT_LE(test::worst_moe_error(c, x.view(), y.view(), limit, in, true), 1.0)
              << tokens << " tokens, x " << dtype_name(in) << ", out " << dtype_name(to);
          EXPECT_TRUE(same_bits(y, run_on_gpu(moe, there.view(), routing.routing, to)));
        }
      }
}

/// One token and one expert at a time on the GPU, added up on the CPU. `down(e)`: how the input of
/// expert e's down is quantized; e is -1 for shared ones. W4A16 without. In FP32, or rounded to
/// BF16 with the results of routed experts before.
template <class Row, class Down>
Matrix by_parts(const MoeCase& c, std::int64_t tokens, float limit, Scheme scheme, const Row& row,
                const Down& down, DType type = DType::f32) {
  struct Parts {
    Linear gate_up, down;
  };
  const auto parts = [&](const test::ExpertMatrices& e) {
    const LinearOptions options = on_gpu(LinearOptions{.scheme = scheme, .batch_invariant = true});
    const WeightView gate_up[] = {e.gate.view(), e.up.view()};
    return Parts{Linear(gate_up, options), Linear(e.down.view(), options)};
  };
  std::vector<Parts> routed, shared;
  for (const test::ExpertMatrices& e : c.routed) routed.push_back(parts(e));
  for (const test::ExpertMatrices& e : c.shared) shared.push_back(parts(e));
  Matrix out(DType::f32, tokens, kK);
  for (std::int64_t t = 0; t < tokens; ++t) {
    const auto add = [&](const Parts& p, std::int64_t e, float weight) {
      const auto x = row(t);
      const Matrix both = p.gate_up.forward(x, DType::f32);
      Matrix y;
      if (scheme == Scheme::w4a4) {
        y = p.down.forward(swiglu_quantize(both.view(), {.limit = limit}, down(e)), DType::f32);
      } else {
        Matrix h(DType::bf16, 1, p.down.inputs(), kGpu);
        swiglu_into(both.view(), h.span(), {.limit = limit});
        y = p.down.forward(h.view(), DType::f32);
      }
      synchronize(kGpu);
      y = to_device(y.view(), {});
      for (std::int64_t i = 0; i < kK; ++i) {
        float value = y.data<float>()[i];
        if (type == DType::bf16 && e >= 0) value = BF16::from_float(value).to_float();
        out.data<float>()[t * kK + i] += weight * value;
      }
    };
    for (const Parts& p : shared) add(p, -1, 1.0f);
    for (std::int64_t k = 0; k < c.top_k; ++k) {
      const auto pair = static_cast<std::size_t>(t * c.top_k + k);
      add(routed[static_cast<std::size_t>(c.ids[pair])], c.ids[pair], c.weights[pair]);
    }
  }
  if (type == DType::f32) return out;
  Matrix rounded(DType::bf16, tokens, kK);
  for (std::int64_t i = 0; i < tokens * kK; ++i)
    rounded.data<std::uint16_t>()[i] = BF16::from_float(out.data<float>()[i]).bits;
  return rounded;
}

TEST_F(CudaLayers, MoeHasTheBitsOfSingleTokens) {
  for (const std::int64_t tokens : {1, 21})
    for (const bool rows : {false, true})
      for (const float limit : {kNone, 0.75f}) {
        const MoeCase c(tokens, kK, kI, rows);
        const Matrix x = make(Fill::gaussian, tokens, kK, 2, DType::bf16);
        const Matrix there = to_device(x.view(), kGpu);
        const PlacedRouting routing(c);
        const auto moe = [&](Scheme scheme) {
          return c.moe(
              on_gpu(MoeOptions{.scheme = scheme, .swiglu_limit = limit, .batch_invariant = true}));
        };
        const Moe w4a4 = moe(Scheme::w4a4), w4a16 = moe(Scheme::w4a16);
        const auto each_row = [](std::int64_t) {
          return QuantizeOptions{.scope = GlobalScope::vector};
        };
        const auto dense_row = [&](std::int64_t t) {
          MatrixView one = there.view();
          one.data = static_cast<const char*>(one.data) + t * kK * 2;
          one.rows = 1;
          return one;
        };
        for (const DType type : {DType::f32, DType::bf16})
          EXPECT_TRUE(
              same_bits(run_on_gpu(w4a16, there.view(), routing.routing, type),
                        by_parts(c, tokens, limit, Scheme::w4a16, dense_row, each_row, type)));
        const QuantizedActivation a = w4a4.quantize(there.view());
        synchronize(kGpu);
        const QuantizedMatrix codes = to_device(a.view(), {});
        const Matrix want = by_parts(
            c, tokens, limit, Scheme::w4a4,
            [&](std::int64_t t) {
              return QuantizedActivation(to_device(test::row_of(codes.view(), t).view(), kGpu));
            },
            each_row);
        EXPECT_TRUE(same_bits(run_on_gpu(w4a4, there.view(), routing.routing), want));
        EXPECT_TRUE(same_bits(run_on_gpu(w4a4, a, routing.routing), want));
      }
}

/// In W4A4 an FP32 sum that differs in its last bits rarely gives another code: most rows agree
/// closely, and those that do not are off by a step of one code.
void expect_agreement(const Matrix& got, const Matrix& want) {
  EXPECT_LE(test::rows_apart(got, want, 1e-4), 1 + want.rows() / 20);
  EXPECT_EQ(test::rows_apart(got, want, 0.2), 0);
}

TEST_F(CudaLayers, MoeW4A4AgreesWithTheCpu) {
  for (const std::int64_t tokens : {1, 40, 401}) {
    MoeCase c(tokens, kK, kI, false, 6, 2);
    for (std::size_t e = 0; e < c.routed.size(); ++e) {
      c.routed[e].input_scale = GlobalScale::from_multiplier(0.004f);
      c.routed[e].down_scale = GlobalScale::from_divisor(100.0f / static_cast<float>(e + 1));
    }
    for (test::ExpertMatrices& e : c.shared) e.down_scale = GlobalScale::from_multiplier(0.02f);
    const Matrix x = make(Fill::gaussian, tokens, kK, 2, DType::bf16);
    const Matrix there = to_device(x.view(), kGpu);
    const PlacedRouting routing(c);
    const ActivationScale given = ActivationScale::fixed(GlobalScale::from_multiplier(0.03f));
    for (const ActivationScale& down : {ActivationScale(), given, ActivationScale::measured(),
                                        ActivationScale::measured(GlobalScope::tensor)})
      for (const ActivationScale& in :
           {ActivationScale(), ActivationScale::measured(GlobalScope::tensor)}) {
        const MoeOptions options{.activation = in, .down_activation = down};
        expect_agreement(run_on_gpu(c.moe(on_gpu(options)), there.view(), routing.routing),
                         test::run(c.moe(options), x.view(), c.routing()));
      }
  }
}

TEST_F(CudaLayers, MoeIgnoresIdsOfNoExpert) {
  const ActivationScale measured = ActivationScale::measured(GlobalScope::tensor),
                        fixed = ActivationScale::fixed(GlobalScale::from_amax(100, Quantizer::max));
  for (const std::int64_t tokens : {1, 7, 400})
    for (const auto& [scheme, down] :
         {std::pair{Scheme::w4a4, measured}, {Scheme::w4a4, fixed}, {Scheme::w4a16, measured}}) {
      MoeCase c(tokens, kK, kI);
      const Matrix x = make(Fill::gaussian, tokens, kK, 2, DType::bf16);
      const Matrix there = to_device(x.view(), kGpu);
      const Matrix loud = to_device(make(Fill::huge, tokens, kK, 3, DType::bf16).view(), kGpu);
      const MoeOptions options = on_gpu(MoeOptions{.scheme = scheme, .down_activation = down});
      const Moe moe = c.moe(options);
      run_on_gpu(moe, loud.view(), PlacedRouting(c).routing);
      std::vector<std::int32_t> ids(c.ids.begin(), c.ids.end());
      for (std::size_t i = 0; i < ids.size(); i += 4) ids[i] = i % 8 ? 6 : -2;
      const PlacedRouting placed(ids, c.weights, c.top_k);
      const Matrix got = run_on_gpu(moe, there.view(), placed.routing);
      EXPECT_TRUE(same_bits(got, run_on_gpu(c.moe(options), there.view(), placed.routing)));
      if (scheme == Scheme::w4a4) continue;
      for (std::size_t i = 0; i < ids.size(); i += 4) c.weights[i] = 0;
      EXPECT_LE(test::worst_moe_error(c, x.view(), got.view(), kNone, DType::bf16, true), 1.0);
    }
}

TEST_F(CudaLayers, MoeTakesStridesAndNoChoices) {
  const MoeCase c(7, kK, kI);
  const Matrix x = to_device(make(Fill::gaussian, 7, kK, 2, DType::bf16).view(), kGpu);
  const Moe moe = c.moe(on_gpu(MoeOptions{.max_tokens = 7, .max_top_k = 3}));
  const Matrix want = run_on_gpu(moe, x.view(), PlacedRouting(c).routing);
  std::vector<std::uint8_t> ids(7 * 5, 255);
  std::vector<float> weights(7 * 4, NAN);
  for (std::size_t t = 0; t < 7; ++t)
    for (std::size_t k = 0; k < 3; ++k) {
      ids[t * 5 + k] = static_cast<std::uint8_t>(c.ids[t * 3 + k]);
      weights[t * 4 + k] = c.weights[t * 3 + k];
    }
  test::Array<std::uint8_t> ids_there(ids, kGpu);
  test::Array<float> weights_there(weights, kGpu);
  Routing routing{.ids = ids_there.data(),
                  .id_type = IndexType::u8,
                  .id_stride = 5,
                  .weights = weights_there.data(),
                  .weight_stride = 4,
                  .rows = 7,
                  .top_k = 3};
  EXPECT_TRUE(same_bits(run_on_gpu(moe, x.view(), routing), want));
  MatrixView row = x.view();
  row.rows = routing.rows = 1;
  const Moe w4a16 = c.moe(on_gpu(MoeOptions{.scheme = Scheme::w4a16}));
  const Matrix of_one = run_on_gpu(w4a16, row, routing);
  row.stride = kK + 4;  // of one row it says nothing
  EXPECT_TRUE(same_bits(run_on_gpu(w4a16, row, routing), of_one));
  routing.rows = 7;
  routing.top_k = 0;  // the shared experts alone
  MoeCase none(7, kK, kI);
  none.weights.assign(none.weights.size(), 0.0f);
  const Matrix shared = run_on_gpu(moe, x.view(), routing),
               same = run_on_gpu(moe, x.view(), PlacedRouting(none).routing);
  for (std::int64_t i = 0; i < 7 * kK; ++i)
    ASSERT_EQ(shared.data<float>()[i], same.data<float>()[i]);
}

TEST_F(CudaLayers, NameWhatIsWrong) {
  const MoeCase c(4, kK, kI);
  const Matrix x = make(Fill::gaussian, 4, kK, 2, DType::bf16);
  const Matrix there = to_device(x.view(), kGpu);
  const Matrix wide = to_device(make(Fill::gaussian, 4, kK, 2).view(), kGpu);
  const PlacedRouting routing(c);
  const Moe moe = c.moe(on_gpu(MoeOptions{.scheme = Scheme::w4a16, .max_tokens = 4}));
  Matrix out(DType::f32, 4, kK, kGpu), on_cpu(DType::f32, 4, kK);
  EXPECT_THROW(moe.forward_into(x.view(), routing.routing, out.span()), DeviceError);
  EXPECT_THROW(moe.forward_into(there.view(), routing.routing, on_cpu.span()), DeviceError);
  EXPECT_THROW(moe.forward_into(wide.view(), routing.routing, out.span()), ValueError);
  EXPECT_THROW(c.moe(on_gpu(MoeOptions{.scheme = Scheme::w4a16, .intermediate = DType::f32})),
               ValueError);
  const QuantizedMatrix q = test::weights(16, kK, 1);
  const WeightView group(q.view());
  const GroupedLinear linear(std::span(&group, 1), on_gpu(LinearOptions{.max_tokens = 3}));
  Matrix y(DType::f32, 4, 16, kGpu);
  EXPECT_THROW(linear.forward_into(there.view(), y.span()), ShapeError);
}

}  // namespace nvfp4::layers_test
