// Products whose rows have the weights that a routing names. Skipped without a Hopper GPU.
#include "nvfp4/activation.h"
#include "quantizers/encode_block.h"
#include "tensor_core_cases.h"

namespace nvfp4::test::tensor_core_routed_test {

/// Ids of some groups and of none, of any type, with gaps between the tokens.
struct Choices {
  std::int64_t tokens, top_k, stride;
  std::vector<std::int64_t> group;  ///< of each choice; -1 for none
  IndexType type;
  std::vector<std::uint8_t> bytes;

  Choices(std::int64_t tokens_, std::int64_t top_k_, std::int64_t groups, std::uint64_t seed)
      : tokens(tokens_), top_k(top_k_), stride(top_k_ + static_cast<std::int64_t>(seed % 3)) {
    const IndexType types[] = {IndexType::i32, IndexType::i64, IndexType::u8, IndexType::i16};
    type = types[seed % 4];
    const std::size_t size = std::size_t{1} << static_cast<int>(type) / 2;
    bytes.assign(static_cast<std::size_t>(tokens * stride) * size, 0x7F);
    std::mt19937_64 rng(seed);
    for (std::int64_t t = 0; t < tokens; ++t)
      for (std::int64_t k = 0; k < top_k; ++k) {
        const bool none = rng() % 5 == 0;
        const auto id = none
                            ? (type == IndexType::u8 || rng() % 2 ? groups : -1)
                            : static_cast<std::int64_t>(rng() % static_cast<std::uint64_t>(groups));
        group.push_back(none ? -1 : id);
        std::memcpy(bytes.data() + static_cast<std::size_t>(t * stride + k) * size, &id, size);
      }
  }
  std::int64_t rows() const { return tokens * top_k; }
};

struct PlacedChoices {
  Array<std::uint8_t> ids;
  Routing routing;

  explicit PlacedChoices(const Choices& c) : ids(c.bytes, kGpu) {
    routing = {.ids = ids.data(),
               .id_type = c.type,
               .id_stride = c.stride,
               .rows = c.tokens,
               .top_k = c.top_k};
  }
};

/// Calls f(x, options) with all that goes with the weights on the GPU.
template <class X, class F>
void with_factors(const X& x, const Weights& w, GpuOptions o, F&& f) {
  const Array<float> alpha(w.alpha, kGpu), bias(w.bias, kGpu);
  o.alpha = kAlpha;
  o.row_ends_settled = x.rows() % 2 == 0;  // copies are complete
  o.group_alpha = alpha.span();
  o.bias = bias.span();
  x.on_gpu(o, f);
}

template <class X>
Output run_routed(const X& x, const Weights& w, const Choices& c, DType type, const GpuOptions& o) {
  const PlacedChoices there(c);
  Placed out = poisoned(type, c.rows() + 2, w.n, w.n + (w.n % 8 == 0 ? 8 : 5), kGpu);
  MatrixSpan span = out.span;
  span.rows = c.rows();
  with_factors(x, w, o, [&](auto view, const GpuOptions& all) {
    GpuOptions routed = all;
    routed.routing = &there.routing;
    multiply(view, w.packed, span, routed);
  });
  Output result{to_device(out.memory.view(), {}), c.rows(), w.n};
  result.expect_untouched_outside();
  return result;
}

template <class X>
void expect_routed(const X& x, const Weights& w, const Choices& c, DType type, const GpuOptions& o,
                   const std::string& what) {
  const Output out = run_routed(x, w, c, type, o);
  const bool of_token = x.rows() == c.tokens;
  for (std::int64_t r = 0; r < c.rows(); ++r) {
    const std::int64_t g = c.group[static_cast<std::size_t>(r)];
    if (g < 0) {
      for (std::int64_t n = 0; n < w.n; ++n)
        ASSERT_TRUE(out.untouched(r, n)) << what << ": row " << r << " is of no group";
      continue;
    }
    EXPECT_LE(error_of(x, of_token ? r / c.top_k : r, 1, 0, w.k, w.group(g), out.part(r, 1, 0, w.n),
                       w.alpha_of(g, kAlpha), w.bias_of(g)),
              1)
        << what << " row " << r;
  }
  EXPECT_TRUE(same_bits(run_routed(x, w, c, type, o).host, out.host)) << what;
}

std::string choices_name(const Choices& c, std::uint64_t seed) {
  return std::to_string(c.tokens) + " x " + std::to_string(c.top_k) + " choices, seed " +
         std::to_string(seed);
}

TEST_F(CudaGemm, RoutedIsRight) {
  std::uint64_t seed = 12 * fresh_seed();
  for (const Shape& s : {Shape{72, 80}, Shape{200, 256}, Shape{13, 320}})
    for (const auto& [tokens, top_k] : {std::pair{0, 8}, {1, 8}, {1, 1}, {5, 3}, {40, 2}, {3, 0}})
      for (const bool of_token : {false, true}) {
        const Choices c(tokens, top_k, 7, ++seed);
        const Weights w(7, s.n, s.k, seed % 3 ? GlobalScope::vector : GlobalScope::tensor, seed);
        const std::int64_t rows = of_token ? tokens : c.rows();
        const DType type = seed % 2 ? DType::f16 : DType::bf16;
        expect_routed(DenseX(rows, s.k, type, seed), w, c, kTypes[seed % 3], {},
                      choices_name(c, seed));
        const GlobalScope scope = seed % 2 ? GlobalScope::vector : GlobalScope::tensor;
        expect_routed(QuantizedX(rows, s.k, scope, seed), w, c, DType::f32, {},
                      choices_name(c, seed) + " quantized");
      }
}

std::vector<KernelConfig> routed_tiles(std::int64_t k, bool swiglu = false) {
  std::vector<KernelConfig> tiles;
  const cuda::Architecture& a = tested_architecture();
  for (const KernelConfig& t : cuda::kernel_configs(a.kernels))
    if (a.why_impossible({.k = k, .routed = true, .swiglu = swiglu}, t).empty()) tiles.push_back(t);
  return tiles;
}

TEST_F(CudaGemm, RoutedIsRightWithEveryTile) {
  const std::uint64_t seed = 12 * fresh_seed() + 3;
  for (const std::int64_t k : {528, 1536})
    for (const KernelConfig& t : routed_tiles(k)) {
      const Weights w(9, 136, k, GlobalScope::vector, seed);
      const Choices c(6, 4, 9, seed);
      const std::string what = name_of(t) + " " + choices_name(c, seed);
      expect_routed(DenseX(6, k, DType::bf16, seed), w, c, DType::bf16, {.kernel = t}, what);
      expect_routed(QuantizedX(24, k, GlobalScope::vector, seed), w, c, DType::f32, {.kernel = t},
                    what + " quantized");
    }
}

TEST_F(CudaGemm, RoutedSwigluHasTheBitsOfItsSteps) {
  std::uint64_t seed = 12 * fresh_seed();
  for (const std::int64_t k : {80, 1536})
    for (const KernelConfig& t : routed_tiles(k, true))
      for (const int interleave : {0, 8}) {
        constexpr std::int64_t kOutputs = 80;
        const Choices c(3, 5, 4, ++seed);
        const Weights w(4, 2 * kOutputs, k, GlobalScope::vector, seed);
        const PackedWeights fused = pack_weights(to_device(w.q.view(), kGpu).view(),
                                                 {.groups = 4, .gate_up = GateUp{interleave}});
        const PlacedChoices there(c);
        const DenseX x(seed % 2 ? 3 : 15, k, DType::bf16, seed);
        const std::string what = name_of(t) + " " + choices_name(c, seed);
        Matrix sums(DType::f32, 15, 2 * kOutputs, kGpu), chained(DType::bf16, 15, kOutputs, kGpu);
        copy(Matrix(DType::f32, 15, 2 * kOutputs).view(), sums.span());
        const QuantizedShape shape{.rows = 15, .cols = kOutputs, .scope = GlobalScope::vector};
        std::vector<GlobalScale> globals;
        for (int r = 0; r < 15; ++r)
          globals.push_back(global_scale_for(1.0f + static_cast<float>(r % 7), Quantizer::max));
        const Array<GlobalScale> globals_there(globals, kGpu);
        QuantizeOptions q{.scope = GlobalScope::vector};
        q.global = {globals_there.span().data(), globals.size(), kGpu};
        Placed y = poisoned(DType::bf16, 15, kOutputs, kOutputs + 5, kGpu);
        QuantizedMatrix codes = poisoned(shape, kGpu), chained_codes = poisoned(shape, kGpu);
        with_factors(x, w, {.kernel = t}, [&](auto view, const GpuOptions& o) {
          GpuOptions routed = o;
          routed.routing = &there.routing;
          routed.limit = 0.5f;
          multiply(view, w.packed, sums.span(), routed);
          routed.epilogue = Epilogue::swiglu;
          multiply(view, fused, y.span, routed);
          routed.epilogue = Epilogue::swiglu_quantize;
          routed.out_global = q.global;
          multiply(view, fused, codes.span(), routed);
        });
        const SwigluOptions steps{.interleave = interleave, .limit = 0.5f};
        swiglu_into(sums.view(), chained.span(), steps);
        swiglu_quantize_into(sums.view(), chained_codes.span(), steps, q);
        synchronize(kGpu);
        const Output got{to_device(y.memory.view(), {}), 15, kOutputs};
        got.expect_untouched_outside();
        const Matrix want = to_device(chained.view(), {});
        const QuantizedMatrix got_codes = to_device(codes.view(), {}),
                              want_codes = to_device(chained_codes.view(), {});
        for (std::int64_t r = 0; r < 15; ++r) {
          if (c.group[static_cast<std::size_t>(r)] < 0) {
            ASSERT_TRUE(got.untouched(r, 0)) << what << " row " << r;
            ASSERT_EQ(got_codes.codes()[r * kOutputs / 2], 0xAA) << what << " row " << r;
            continue;
          }
          const auto same = [](const void* a, const void* b, std::int64_t bytes) {
            return std::memcmp(a, b, static_cast<std::size_t>(bytes)) == 0;
          };
          ASSERT_TRUE(same(got.part(r, 1, 0, kOutputs).data, want.data<char>() + r * kOutputs * 2,
                           kOutputs * 2))
              << what << " row " << r;
          ASSERT_TRUE(same(got_codes.codes() + r * kOutputs / 2,
                           want_codes.codes() + r * kOutputs / 2, kOutputs / 2))
              << what << " codes of row " << r;
          ASSERT_TRUE(same(got_codes.scales() + r * kOutputs / 16,
                           want_codes.scales() + r * kOutputs / 16, kOutputs / 16))
              << what << " scales of row " << r;
          ASSERT_EQ(got_codes.global_scale()[r], want_codes.global_scale()[r]) << what;
        }
      }
}

TEST_F(CudaGemm, RoutedRefusesWhatItCannotDo) {
  const Weights w(3, 32, 64, GlobalScope::tensor, 1);
  const Choices c(2, 4, 3, 1);
  const PlacedChoices there(c);
  const Matrix x(DType::bf16, 2, 64, kGpu), three(DType::bf16, 3, 64, kGpu);
  Matrix y(DType::bf16, 8, 32, kGpu), two(DType::bf16, 2, 32, kGpu);
  const auto routed = [&](const Matrix& from, Matrix& to, GpuOptions o = {}) {
    if (o.routing == nullptr) o.routing = &there.routing;
    multiply(from.view(), w.packed, to.span(), o);
  };
  EXPECT_NO_THROW(routed(x, y));
  EXPECT_THROW(routed(three, y), ShapeError);
  EXPECT_THROW(routed(x, two), ShapeError);
  EXPECT_THROW(routed(x, y, {.batch_invariant = true}), ValueError);
  EXPECT_THROW(routed(x, y, {.kernel = {16, 64, 2}}), ValueError);
  const Weights one(1, 32, 64, GlobalScope::tensor, 1);
  EXPECT_NO_THROW(multiply(x.view(), one.packed, two.span()));
  EXPECT_THROW(multiply(x.view(), one.packed, two.span(), {.kernel = {1, 64, 1}}), ValueError);
  constexpr std::int64_t kTooDeep = kMostRoutedDepth + 16;
  EXPECT_THROW(
      plan_gemm({.m = 8, .n = 32, .k = kTooDeep, .groups = 3, .form = GemmForm::routed, .top_k = 4},
                kGpu),
      UnsupportedError);
  EXPECT_THROW(routed(x, y, {.epilogue = Epilogue::swiglu}), ValueError);
  Routing routing = there.routing;
  routing.ids = nullptr;
  EXPECT_THROW(routed(x, y, {.routing = &routing}), ShapeError);
  routing = there.routing;
  routing.id_stride = 3;
  EXPECT_THROW(routed(x, y, {.routing = &routing}), ShapeError);
  synchronize(kGpu);
}

}  // namespace nvfp4::test::tensor_core_routed_test
