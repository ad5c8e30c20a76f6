// Products that end in SwiGLU have the bits of the product, SwiGLU and quantization one after the
// other. Skipped without a Hopper GPU.
#include "nvfp4/activation.h"
#include "quantizers/encode_block.h"
#include "tensor_core_cases.h"

namespace nvfp4::test::tensor_core_swiglu_test {

/// Gate and up, packed as they are and for SwiGLU, and all that both products are told.
struct GateUpCase {
  Weights w;
  PackedWeights fused;
  GateUp order;
  float limit;
  KernelConfig kernel = {};
  bool batch_invariant = false;

  GateUpCase(std::int64_t groups, std::int64_t outputs, std::int64_t k, int interleave,
             std::uint64_t seed)
      : w(groups, 2 * outputs, k, seed % 3 ? GlobalScope::vector : GlobalScope::tensor, seed),
        fused(pack_weights(to_device(w.q.view(), kGpu).view(),
                           {.groups = groups, .gate_up = GateUp{interleave}})),
        order{interleave},
        limit(seed % 5 ? std::numeric_limits<float>::infinity() : 0.5f) {}
  std::int64_t outputs() const { return w.n / 2; }
};

/// Rows of groups that do not follow one another, or none: one group.
struct Rows {
  std::vector<std::int32_t> starts, ends;
};

/// Calls f(options) with alpha, bias and groups of the case on the GPU.
template <class F>
void with_options(const GateUpCase& c, const Rows& rows, GpuOptions o, F&& f) {
  const Array<float> alpha(c.w.alpha, kGpu), bias(c.w.bias, kGpu);
  const Array<std::int32_t> starts(rows.starts, kGpu), ends(rows.ends, kGpu);
  o.alpha = kAlpha;
  o.group_alpha = alpha.span();
  o.bias = bias.span();
  o.kernel = c.kernel;
  o.batch_invariant = c.batch_invariant;
  o.limit = c.limit;
  if (!rows.ends.empty()) {
    o.form = GemmForm::grouped;
    o.row_starts = starts.span();
    o.row_ends = ends.span();
  }
  f(o);
  synchronize(kGpu);
}

/// Gate and up in FP32; rows of no group stay zero.
template <class X>
Matrix sums_of(const GateUpCase& c, const X& x, const Rows& rows) {
  Matrix sums(DType::f32, x.rows(), c.w.n, kGpu);
  copy(Matrix(DType::f32, x.rows(), c.w.n).view(), sums.span());
  x.on_gpu({}, [&](auto view, const GpuOptions& base) {
    with_options(c, rows, base,
                 [&](const GpuOptions& o) { multiply(view, c.w.packed, sums.span(), o); });
  });
  return sums;
}

bool is_of_a_group(const Rows& rows, std::int64_t row) {
  if (rows.ends.empty()) return true;
  for (std::size_t g = 0; g < rows.ends.size(); ++g)
    if (row >= rows.starts[g] && row < rows.ends[g]) return true;
  return false;
}

template <class X>
void expect_stored(const GateUpCase& c, const X& x, DType type, const Rows& rows,
                   const std::string& what) {
  const std::int64_t m = x.rows(), n = c.outputs();
  const Matrix sums = sums_of(c, x, rows);
  Matrix chained(type, m, n, kGpu);
  swiglu_into(sums.view(), chained.span(), {.interleave = c.order.interleave, .limit = c.limit});
  Placed y = poisoned(type, m + 2, n, n + (c.w.n % 3 ? 8 : 5), kGpu);
  MatrixSpan span = y.span;
  span.rows = m;
  x.on_gpu({}, [&](auto view, const GpuOptions& base) {
    with_options(c, rows, base, [&](GpuOptions o) {
      o.epilogue = Epilogue::swiglu;
      multiply(view, c.fused, span, o);
    });
  });
  const Output out{to_device(y.memory.view(), {}), m, n};
  out.expect_untouched_outside();
  const Matrix want = to_device(chained.view(), {});
  const std::int64_t bytes = n * dtype_size(type);
  for (std::int64_t r = 0; r < m; ++r) {
    if (!is_of_a_group(rows, r)) {
      ASSERT_TRUE(out.untouched(r, 0)) << what << " row " << r;
      continue;
    }
    ASSERT_EQ(std::memcmp(out.part(r, 1, 0, n).data, want.data<char>() + r * bytes,
                          static_cast<std::size_t>(bytes)),
              0)
        << what << " row " << r;
  }
}

template <class X>
void expect_quantized(const GateUpCase& c, const X& x, ScaleLayout layout, GlobalScope scope,
                      const Rows& rows, const std::string& what) {
  const std::int64_t m = x.rows(), n = c.outputs();
  const Matrix sums = sums_of(c, x, rows);
  const QuantizedShape shape{.rows = m, .cols = n, .layout = layout, .scope = scope};
  // Given: those that would be measured, of each row.
  std::vector<GlobalScale> globals(static_cast<std::size_t>(shape.global_count()),
                                   global_scale_for(20.0f, Quantizer::max));
  for (std::size_t i = 0; i < globals.size(); ++i)
    globals[i] = global_scale_for(1.0f + static_cast<float>(i % 7), Quantizer::max);
  const Array<GlobalScale> there(globals, kGpu);
  QuantizeOptions q{.layout = layout, .scope = scope};
  q.global = {there.span().data(), globals.size(), kGpu};
  if (scope == GlobalScope::tensor && m % 2) q.global = {globals.data(), 1};
  QuantizedMatrix chained = poisoned(shape, kGpu), fused = poisoned(shape, kGpu);
  swiglu_quantize_into(sums.view(), chained.span(),
                       {.interleave = c.order.interleave, .limit = c.limit}, q);
  x.on_gpu({}, [&](auto view, const GpuOptions& base) {
    with_options(c, rows, base, [&](GpuOptions o) {
      o.epilogue = Epilogue::swiglu_quantize;
      o.out_global = q.global;
      multiply(view, c.fused, fused.span(), o);
    });
  });
  QuantizedMatrix want = to_device(chained.view(), {}), got = to_device(fused.view(), {});
  for (std::int64_t r = 0; r < m; ++r) {
    if (is_of_a_group(rows, r)) continue;
    for (std::int64_t b = 0; b < n / 2; ++b) {
      ASSERT_EQ(got.codes()[r * n / 2 + b], 0xAA) << what << " row " << r;
      want.codes()[r * n / 2 + b] = 0xAA;
    }
    for (std::int64_t b = 0; b < n / 16; ++b) {
      const std::int64_t at = shape.scale_offset(r, b);
      want.scales()[at] = got.scales()[at];
    }
  }
  ASSERT_TRUE(got == want) << what;
}

TEST_F(CudaGemm, SwigluHasTheBitsOfItsSteps) {
  std::uint64_t seed = 15 * fresh_seed();
  for (const int interleave : {0, 1, 8, 16})
    for (const auto& [outputs, k] :
         {std::pair{16, 16}, std::pair{48, 80}, std::pair{144, 720}, std::pair{112, 1040}})
      for (const std::int64_t m : {0, 1, 7, 33, 150}) {
        ++seed;
        const GateUpCase c(1, outputs, k, interleave, seed);
        const std::string what = name_of(Shape{2 * outputs, k}, m, seed);
        const DenseX x(m, k, seed % 5 < 2 ? DType::f16 : DType::bf16, seed);
        expect_stored(c, x, kTypes[seed % 3], {}, what);
        const GlobalScope scope = seed % 2 ? GlobalScope::vector : GlobalScope::tensor;
        expect_quantized(c, x, ScaleLayout::linear, scope, {}, what);
        const QuantizedX xq(m, k, scope, seed);
        expect_stored(c, xq, kTypes[seed % 3], {}, what + " quantized x");
        expect_quantized(c, xq, ScaleLayout::tiled_128x4, scope, {}, what + " quantized x");
      }
}

TEST_F(CudaGemm, SwigluEqualsItsStepsWithEveryTile) {
  const std::uint64_t seed = 15 * fresh_seed() + 3;
  for (const std::int64_t m : {150, 104, 74})
    for (const int interleave : {0, 8}) {
      GateUpCase c(1, 176, 720, interleave, seed + static_cast<std::uint64_t>(m));
      const DenseX x(m, 720, DType::bf16, seed);
      for (const KernelConfig& t : all_tiles(720, true)) {
        c.kernel = t;
        const std::string what = name_of(t) + " seed " + std::to_string(seed);
        expect_stored(c, x, DType::bf16, {}, what);
        expect_quantized(c, x, ScaleLayout::linear, GlobalScope::vector, {}, what);
      }
    }
}

/// Tiles of few tokens are for depths of whole chunks only.
TEST_F(CudaGemm, SwigluOfFewRowsEqualsItsSteps) {
  const std::uint64_t seed = 15 * fresh_seed() + 3;
  for (const std::int64_t m : {1, 2, 3})
    for (const int interleave : {0, 8}) {
      GateUpCase c(1, 176, 704, interleave, seed + static_cast<std::uint64_t>(m));
      const DenseX x(m, 704, DType::bf16, seed);
      for (const KernelConfig& t : all_tiles(704, true)) {
        c.kernel = t;
        const std::string what = name_of(t) + " seed " + std::to_string(seed);
        expect_stored(c, x, DType::bf16, {}, what);
        expect_quantized(c, x, ScaleLayout::linear, GlobalScope::vector, {}, what);
      }
    }
}

/// BF16, times 2^20: some of its gates are too large for the short way.
void enlarge_row(DenseX& x, std::int64_t row, std::int64_t k) {
  std::uint16_t* const first = x.memory.data<std::uint16_t>() + row * x.memory.cols();
  for (std::int64_t i = 0; i < k; ++i)
    if ((first[i] & 0x7F80) != 0) first[i] = static_cast<std::uint16_t>(first[i] + (20 << 7));
}

TEST_F(CudaGemm, SwigluOfGroupsEqualsItsSteps) {
  std::uint64_t seed = 15 * fresh_seed();
  // Empty groups, gaps between them, and a row of none at the end.
  const Rows rows{{0, 5, 5, 40, 60, 200}, {5, 5, 38, 60, 190, 299}};
  for (const int interleave : {0, 8})
    for (const GlobalScope scope : {GlobalScope::tensor, GlobalScope::vector}) {
      if (test_stride() > 1 && (interleave == 0) != (scope == GlobalScope::tensor)) continue;
      const std::int64_t k = interleave == 0 ? 272 : 1552;
      GateUpCase c(6, 80, k, interleave, ++seed);
      const std::string what = "seed " + std::to_string(seed);
      for (const KernelConfig& t :
           {KernelConfig{}, KernelConfig{64, 128, 1}, KernelConfig{16, 64, 2},
            KernelConfig{96, 128, 1}, KernelConfig{256, 64, 1}, KernelConfig{64, 192, 1},
            KernelConfig{128, 192, 2}, KernelConfig{48, 192, 1}, KernelConfig{128, 128, 1},
            KernelConfig{144, 128, 1}}) {
        c.kernel = t;
        DenseX x(300, k, DType::bf16, seed);
        for (const std::int64_t last : {4, 37, 59, 189, 298}) enlarge_row(x, last, k);
        expect_stored(c, x, DType::bf16, rows, what);
        expect_quantized(c, x, ScaleLayout::linear, scope, rows, what);
        const QuantizedX xq(300, k, scope, seed);
        expect_quantized(c, xq, ScaleLayout::tiled_128x4, scope, rows, what);
      }
    }
}

TEST_F(CudaGemm, SwigluKeepsNanAndInfinity) {
  const GateUpCase c(1, 32, 64, 0, 1);
  DenseX x(9, 64, DType::bf16, 3);
  std::uint16_t* const first = x.memory.data<std::uint16_t>();
  first[0] = 0x7FC0;
  first[x.memory.cols() + 1] = 0x7F80;
  first[2 * x.memory.cols() + 2] = 0xFF80;
  first[3 * x.memory.cols() + 2] = 0x7F00;
  expect_stored(c, x, DType::bf16, {}, "non-finite");
  expect_quantized(c, x, ScaleLayout::linear, GlobalScope::vector, {}, "non-finite");
}

TEST_F(CudaGemm, SwigluOfManyTilesEqualsItsSteps) {
  const std::uint64_t seed = 15 * fresh_seed() + 3;
  GateUpCase c(1, 1552, 272, 8, seed);
  DenseX x(1500, 272, DType::bf16, seed);
  for (std::int64_t row = 5; row < 1500; row += 97) enlarge_row(x, row, 272);
  x.memory.data<std::uint16_t>()[20 * x.memory.cols() + 1] = 0x7FC0;
  for (const KernelConfig& t : whole_tiles()) {
    c.kernel = t;
    const std::string what = name_of(t) + " seed " + std::to_string(seed);
    expect_stored(c, x, DType::bf16, {}, what);
    expect_quantized(c, x, ScaleLayout::linear, GlobalScope::vector, {}, what);
    expect_stored(c, DenseX(700, 272, DType::f16, seed), DType::f16, {}, what + " FP16");
    expect_stored(c, QuantizedX(300, 272, GlobalScope::tensor, seed), DType::bf16, {},
                  what + " quantized x");
  }
}

TEST_F(CudaGemm, SwigluRefusesWhatItCannotDo) {
  const GateUpCase c(1, 32, 64, 0, 1), two(2, 32, 64, 0, 1);
  const Matrix x(DType::bf16, 4, 64, kGpu);
  Matrix y(DType::bf16, 4, 32, kGpu), wide(DType::bf16, 4, 64, kGpu);
  QuantizedMatrix q({.rows = 4, .cols = 32}, kGpu);
  const GlobalScale one{1, 1};
  const GpuOptions stored{.epilogue = Epilogue::swiglu},
      quantized{.epilogue = Epilogue::swiglu_quantize, .out_global = {&one, 1}};
  EXPECT_THROW(multiply(x.view(), c.fused, wide.span()), ValueError);
  EXPECT_THROW(multiply(x.view(), c.w.packed, y.span(), stored), ValueError);
  EXPECT_THROW(multiply(x.view(), c.fused, wide.span(), stored), ShapeError);
  EXPECT_THROW(multiply(x.view(), two.fused, y.span(), stored), ShapeError);
  EXPECT_THROW(multiply(x.view(), c.fused, y.span(), {.epilogue = Epilogue::swiglu, .limit = 0}),
               ValueError);
  EXPECT_THROW(multiply(x.view(), c.fused, q.span(), {.epilogue = Epilogue::swiglu_quantize}),
               ValueError)
      << "measured";
  QuantizedMatrix narrow({.rows = 4, .cols = 16}, kGpu);
  EXPECT_THROW(multiply(x.view(), c.fused, narrow.span(), quantized), ShapeError);
  EXPECT_NO_THROW(multiply(x.view(), c.fused, q.span(), quantized));
  synchronize(kGpu);
}

TEST_F(CudaGemm, PacksGateAndUpAsTheCpuDoes) {
  for (const int interleave : {0, 2, 8})
    for (const GlobalScope scope : {GlobalScope::tensor, GlobalScope::vector}) {
      const QuantizedMatrix w = random_weights({.rows = 3 * 96, .cols = 208, .scope = scope}, 5);
      HostFragments cpu = pack_on_host(w.view(), 3, GateUp{interleave});
      const PackedWeights gpu =
          pack_weights(w.view(), {.groups = 3, .gate_up = GateUp{interleave}, .device = kGpu});
      EXPECT_EQ(bytes_of(gpu), cpu.bytes);
      for (std::int64_t g = 0; g < 3; ++g)
        EXPECT_TRUE(to_device(unpack_weights(gpu, g).view(), {}) == unpack_on_host(cpu, g));
    }
}

}  // namespace nvfp4::test::tensor_core_swiglu_test
