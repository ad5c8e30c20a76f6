// Products on tensor cores against FP64 ones of the unpacked weights. Skipped without a Hopper GPU.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "backends/cuda/gemm/problem.h"
#include "fragment_cases.h"
#include "nvfp4/error.h"
#include "placed.h"

namespace nvfp4 {
namespace {

using test::Array;
using test::Fill;

const Device kGpu = Device::cuda();

class CudaGemm : public testing::Test {
 protected:
  void SetUp() override {
    if (const std::string reason = why_unavailable(kGpu); !reason.empty())
      GTEST_SKIP() << "no GPU to run on: " << reason;
    if (const std::string sm = cuda_devices()[0].architecture; sm != "sm_90")
      GTEST_SKIP() << "wgmma is for sm_90 only, this GPU is " << sm;
  }
  static std::uint64_t fresh_seed() { return std::random_device{}() % 1'000'000; }
};

/// An operand of a product on the host, and how the product takes it.
struct DenseX {
  Matrix memory;  ///< a gap of NaN behind each row
  std::int64_t cols;

  DenseX(std::int64_t rows, std::int64_t k, DType type, std::uint64_t seed)
      : memory(test::strided(Fill::gaussian, rows, k, 8 * static_cast<std::int64_t>(seed % 3), seed,
                             type)),
        cols(k) {}
  std::int64_t rows() const { return memory.rows(); }
  MatrixView part(std::int64_t row, std::int64_t n, std::int64_t col, std::int64_t k) const {
    MatrixView v = memory.view();
    v.data = memory.data<char>() + (row * v.stride + col) * 2;
    v.rows = n;
    v.cols = k;
    return v;
  }
  template <class F>
  void on_gpu(const TensorCoreGemmOptions& o, F&& f) const {
    const test::Placed x = test::placed(memory, cols, kGpu);
    f(MatrixView(x.span), o);
    synchronize(kGpu, o.stream);
  }
};

struct QuantizedX {
  QuantizedMatrix q;
  std::int64_t cols;

  QuantizedX(std::int64_t rows, std::int64_t k, GlobalScope scope, std::uint64_t seed)
      : q(test::activations(rows, k, seed, scope)), cols(k) {}
  std::int64_t rows() const { return q.shape().rows; }
  QuantizedMatrix copy_of(std::int64_t row, std::int64_t n, std::int64_t col,
                          std::int64_t k) const {
    QuantizedMatrix p({.rows = n, .cols = k, .scope = q.shape().scope});
    for (std::int64_t r = 0; r < n; ++r) {
      std::memcpy(p.codes() + r * k / 2, q.codes() + ((row + r) * cols + col) / 2,
                  static_cast<std::size_t>(k / 2));
      std::memcpy(p.scales() + r * k / 16, q.scales() + ((row + r) * cols + col) / 16,
                  static_cast<std::size_t>(k / 16));
    }
    const bool per_row = q.shape().scope == GlobalScope::vector;
    for (std::int64_t r = 0; r < p.shape().global_count(); ++r)
      p.global_scale()[r] = q.global_scale()[per_row ? row + r : 0];
    return p;
  }
  template <class F>
  void on_gpu(TensorCoreGemmOptions o, F&& f) const {
    const QuantizedMatrix x = to_device(q.view(), kGpu);
    const std::int64_t bytes = gemm_workspace_bytes(q.shape());
    Matrix space = test::poisoned(DType::f32, 1, bytes / 4 + 4, bytes / 4 + 4, kGpu).memory;
    o.workspace = {space.data<std::byte>(), static_cast<std::size_t>(bytes)};
    f(x.view(), o);
    synchronize(kGpu, o.stream);
    const Matrix after = to_device(space.view(), {});
    for (std::int64_t i = bytes; i < bytes + 16; ++i)
      ASSERT_EQ(after.data<std::uint8_t>()[i], 0xAA) << "behind the workspace";
  }
};

double error_of(const DenseX& x, std::int64_t row, std::int64_t n, std::int64_t col, std::int64_t k,
                const QuantizedView& w, const MatrixView& out, float alpha,
                std::span<const float> bias) {
  return test::worst_tensor_core_error(x.part(row, n, col, k), w, out, alpha, bias);
}
double error_of(const QuantizedX& x, std::int64_t row, std::int64_t n, std::int64_t col,
                std::int64_t k, const QuantizedView& w, const MatrixView& out, float alpha,
                std::span<const float> bias) {
  const QuantizedMatrix part = x.copy_of(row, n, col, k);
  return test::worst_tensor_core_error(part.view(), w, out, alpha, bias);
}

/// G matrices [N, K] with all that may go with them.
struct Weights {
  std::int64_t groups, n, k;
  QuantizedMatrix q;  ///< [G · N, K]
  std::vector<float> alpha, bias;
  FragmentWeights packed;

  Weights(std::int64_t g, std::int64_t n_, std::int64_t k_, GlobalScope scope, std::uint64_t seed)
      : groups(g), n(n_), k(k_), q(test::weights(g * n_, k_, seed, scope)) {
    if (seed % 2) alpha = test::random_floats(static_cast<std::size_t>(g), seed + 1);
    if (seed / 2 % 2) bias = test::random_floats(static_cast<std::size_t>(g * n_), seed + 2);
    packed = pack_fragments(to_device(q.view(), kGpu).view(), g);
  }
  QuantizedView group(std::int64_t g) const {
    const bool per_row = q.shape().scope == GlobalScope::vector;
    return {{.rows = n, .cols = k, .scope = q.shape().scope},
            q.codes() + g * n * k / 2,
            q.scales() + g * n * k / 16,
            q.global_scale() + (per_row ? g * n : 0)};
  }
  float alpha_of(std::int64_t g, float factor) const {
    return alpha.empty() ? factor : factor * alpha[static_cast<std::size_t>(g)];
  }
  std::span<const float> bias_of(std::int64_t g) const {
    if (bias.empty()) return {};
    return {bias.data() + g * n, static_cast<std::size_t>(n)};
  }
};

/// A result in poisoned memory: a gap behind each row, two rows more.
struct Output {
  Matrix host;
  std::int64_t rows, cols;

  MatrixView part(std::int64_t row, std::int64_t n, std::int64_t col, std::int64_t m) const {
    MatrixView v = host.view();
    v.data = host.data<char>() + (row * v.stride + col) * dtype_size(v.dtype);
    v.rows = n;
    v.cols = m;
    return v;
  }
  bool untouched(std::int64_t row, std::int64_t col) const {
    const std::int64_t size = dtype_size(host.dtype());
    const auto* at = host.data<std::uint8_t>() + (row * host.cols() + col) * size;
    return std::all_of(at, at + size, [](std::uint8_t b) { return b == 0xAA; });
  }
  void expect_untouched_outside() const {
    for (std::int64_t r = 0; r < host.rows(); ++r)
      for (std::int64_t c = r < rows ? cols : 0; c < host.cols(); ++c)
        ASSERT_TRUE(untouched(r, c)) << "row " << r << " column " << c << " is outside of out";
  }
};

constexpr float kAlpha = 0.75f;

enum class Form { one, grouped, every_group };

/// Runs one product on the GPU.
template <class X>
Output run(Form form, const X& x, const Weights& w, DType type, TensorCoreGemmOptions o = {},
           const std::vector<std::int32_t>& starts = {}, const std::vector<std::int32_t>& ends = {},
           std::int64_t gap = 5) {
  const std::int64_t cols = form == Form::every_group ? w.groups * w.n : w.n;
  test::Placed out = test::poisoned(type, x.rows() + 2, cols, cols + gap, kGpu);
  MatrixSpan span = out.span;
  span.rows = x.rows();
  const Array<float> alpha(w.alpha, kGpu), bias(w.bias, kGpu);
  const Array<std::int32_t> from(starts, kGpu), to(ends, kGpu);
  o.alpha = kAlpha;
  o.group_alpha = alpha.span();
  o.bias = bias.span();
  x.on_gpu(o, [&](auto view, const TensorCoreGemmOptions& all) {
    if (form == Form::one)
      gemm_into(view, w.packed, span, all);
    else if (form == Form::grouped)
      grouped_gemm_into(view, w.packed, from.span(), to.span(), span, all);
    else
      gemm_every_group_into(view, w.packed, span, all);
  });
  Output result{to_device(out.memory.view(), {}), x.rows(), cols};
  result.expect_untouched_outside();
  return result;
}

template <class X>
void expect_product(const X& x, const Weights& w, DType type, const TensorCoreGemmOptions& o,
                    std::int64_t gap, const std::string& what) {
  const Output out = run(Form::one, x, w, type, o, {}, {}, gap);
  EXPECT_LE(error_of(x, 0, x.rows(), 0, w.k, w.group(0), out.part(0, x.rows(), 0, w.n),
                     w.alpha_of(0, kAlpha), w.bias_of(0)),
            1)
      << what;
}

struct Shape {
  std::int64_t n, k;
};
constexpr Shape kShapes[] = {{8, 16}, {72, 80}, {13, 64}, {130, 256}, {200, 720}, {64, 1040}};
constexpr DType kTypes[] = {DType::f32, DType::bf16, DType::f16};
constexpr std::int64_t kRows[] = {0, 1, 7, 17, 33, 65, 129, 300};

std::string name_of(const Shape& s, std::int64_t m, std::uint64_t seed) {
  return std::to_string(m) + " x " + std::to_string(s.n) + " x " + std::to_string(s.k) + " seed " +
         std::to_string(seed);
}

std::vector<GemmTile> all_tiles() {
  std::vector<GemmTile> tiles;
  for (const int tokens : {8, 16, 32, 64, 128, 256})
    for (const int rows : {64, 128, 256})
      for (const int splits : {1, 2, 4, 8})
        if (cuda::is_tile({tokens, rows, splits})) tiles.push_back({tokens, rows, splits});
  return tiles;
}

TEST_F(CudaGemm, IsRightForEveryNumberOfRowsAndType) {
  std::uint64_t seed = 10 * fresh_seed();
  for (const Shape& s : kShapes)
    for (const std::int64_t m : kRows)
      for (const DType type : kTypes) {
        ++seed;
        const GlobalScope scope = seed % 3 ? GlobalScope::vector : GlobalScope::tensor;
        const Weights w(1, s.n, s.k, scope, seed);
        const DenseX x(m, s.k, seed % 5 < 2 ? DType::f16 : DType::bf16, seed);
        expect_product(x, w, type, {.batch_invariant = seed % 7 == 0}, seed % 2 ? 5 : 8,
                       name_of(s, m, seed));
      }
}

TEST_F(CudaGemm, OfQuantizedRowsIsRight) {
  std::uint64_t seed = 10 * fresh_seed();
  for (const Shape& s : kShapes)
    for (const std::int64_t m : {0, 1, 33, 129})
      for (const GlobalScope scope : {GlobalScope::tensor, GlobalScope::vector}) {
        ++seed;
        const Weights w(1, s.n, s.k, seed % 2 ? GlobalScope::vector : GlobalScope::tensor, seed);
        const QuantizedX x(m, s.k, scope, seed);
        expect_product(x, w, kTypes[seed % 3], {}, 8, name_of(s, m, seed));
      }
}

TEST_F(CudaGemm, OfQuantizedRowsReadsEveryScaleLayout) {
  const Weights w(1, 72, 208, GlobalScope::tensor, 4);
  const QuantizedX x(37, 208, GlobalScope::vector, 5);
  const Output want = run(Form::one, x, w, DType::f32);
  QuantizedX tiled = QuantizedX(37, 208, GlobalScope::vector, 5);
  tiled.q = QuantizedMatrix(
      {.rows = 37, .cols = 208, .layout = ScaleLayout::tiled_128x4, .scope = GlobalScope::vector});
  std::memcpy(tiled.q.codes(), x.q.codes(), static_cast<std::size_t>(x.q.shape().code_bytes()));
  std::memcpy(tiled.q.global_scale(), x.q.global_scale(), 37 * 4);
  relayout_scales({x.q.scales(), 37 * 13}, ScaleLayout::linear,
                  {tiled.q.scales(), static_cast<std::size_t>(tiled.q.shape().scale_bytes())},
                  ScaleLayout::tiled_128x4, 37, 13);
  EXPECT_TRUE(test::same_bits(run(Form::one, tiled, w, DType::f32).host, want.host));
}

std::string name_of(const GemmTile& t) {
  return "tile " + std::to_string(t.tokens) + " " + std::to_string(t.rows) + " " +
         std::to_string(t.splits);
}

/// One product with many tiles: what it should be is worked out once.
void expect_tiles(const DenseX& x, const Weights& w, DType type, std::span<const GemmTile> tiles,
                  const std::string& what) {
  const MatrixView whole = x.part(0, x.rows(), 0, w.k);
  const test::Sums sums = test::sums_of(whole, w.group(0));
  for (const GemmTile& t : tiles) {
    const Output out = run(Form::one, x, w, type, {.tile = t}, {}, {}, 8);
    EXPECT_LE(test::worst_tensor_core_error(sums, whole, w.group(0), out.part(0, x.rows(), 0, w.n),
                                            w.alpha_of(0, kAlpha), w.bias_of(0)),
              1)
        << what << " " << name_of(t);
  }
}

TEST_F(CudaGemm, IsRightWithEveryTile) {
  const std::uint64_t seed = 4 * fresh_seed() + 3;
  for (const Shape& s : {Shape{200, 720}, Shape{328, 2048}, Shape{72, 48}})
    for (const DType type : {DType::bf16, DType::f16})
      expect_tiles(DenseX(150, s.k, type, seed), Weights(1, s.n, s.k, GlobalScope::vector, seed),
                   DType::f32, all_tiles(), name_of(s, 150, seed));
}

/// More tiles than there are multiprocessors: blocks take several.
TEST_F(CudaGemm, IsRightWhereBlocksTakeManyTiles) {
  const std::uint64_t seed = 4 * fresh_seed() + 3;
  std::vector<GemmTile> tiles = all_tiles();
  std::erase_if(tiles, [](const GemmTile& t) { return t.splits > 2; });
  tiles.push_back({});
  expect_tiles(DenseX(700, 128, DType::bf16, seed),
               Weights(1, 3080, 128, GlobalScope::vector, seed), DType::bf16, tiles,
               "seed " + std::to_string(seed));
}

/// Rows of groups, contiguous or with gaps between them.
struct Groups {
  std::vector<std::int32_t> starts, ends;
  std::int32_t rows = 0;

  Groups(std::size_t count, bool padded, std::uint64_t seed) {
    std::mt19937_64 rng(seed);
    for (std::size_t g = 0; g < count; ++g) {
      if (padded) rows += static_cast<std::int32_t>(rng() % 20);
      if (padded) starts.push_back(rows);
      const int some[] = {0, 0, 1, 3, 8, 40, 70, 200};
      rows += some[rng() % std::size(some)];
      ends.push_back(rows);
    }
    rows += 3;  // of no group
  }
  std::int32_t start(std::size_t g) const {
    return !starts.empty() ? starts[g] : g == 0 ? 0 : ends[g - 1];
  }
};

template <class X>
void expect_groups(const X& x, const Weights& w, const Groups& groups, DType type,
                   const TensorCoreGemmOptions& o, const std::string& what) {
  const Output out = run(Form::grouped, x, w, type, o, groups.starts, groups.ends);
  std::int64_t row = 0;
  for (std::size_t g = 0; g < groups.ends.size(); ++g) {
    const std::int64_t from = groups.start(g), rows = groups.ends[g] - from;
    for (; row < from; ++row)
      ASSERT_TRUE(out.untouched(row, 0)) << what << ": row " << row << " is of no group";
    row = from + rows;
    const auto i = static_cast<std::int64_t>(g);
    EXPECT_LE(error_of(x, from, rows, 0, w.k, w.group(i), out.part(from, rows, 0, w.n),
                       w.alpha_of(i, kAlpha), w.bias_of(i)),
              1)
        << what << " group " << g;
  }
  for (; row < out.rows; ++row) ASSERT_TRUE(out.untouched(row, 0)) << what << ": the last rows";
}

TEST_F(CudaGemm, GroupedIsRight) {
  std::uint64_t seed = 10 * fresh_seed();
  for (const Shape& s : {Shape{72, 80}, Shape{200, 256}, Shape{13, 320}})
    for (const std::size_t count : {1, 7, 40})
      for (const bool padded : {false, true}) {
        ++seed;
        const Groups groups(count, padded, seed);
        const Weights w(static_cast<std::int64_t>(count), s.n, s.k,
                        seed % 3 ? GlobalScope::vector : GlobalScope::tensor, seed);
        const std::string what = std::to_string(count) + " groups, " + name_of(s, 0, seed);
        expect_groups(DenseX(groups.rows, s.k, DType::bf16, seed), w, groups, kTypes[seed % 3], {},
                      what);
        expect_groups(QuantizedX(groups.rows, s.k, GlobalScope::vector, seed), w, groups,
                      DType::f32, {}, what + " quantized");
      }
}

TEST_F(CudaGemm, GroupedIsRightWithEveryTile) {
  const std::uint64_t seed = 4 * fresh_seed() + 3;
  const Groups groups(9, true, seed);
  const Weights w(9, 136, 528, GlobalScope::vector, seed);
  const DenseX x(groups.rows, 528, DType::bf16, seed);
  for (const GemmTile& t : all_tiles())
    expect_groups(x, w, groups, DType::f32, {.tile = t},
                  name_of(t) + " seed " + std::to_string(seed));
}

TEST_F(CudaGemm, OfNoRowsInAnyGroupWritesNothing) {
  const Weights w(5, 72, 64, GlobalScope::tensor, 1);
  const DenseX x(20, 64, DType::bf16, 1);
  for (const GemmTile& t : {GemmTile{}, GemmTile{8, 128, 4}, GemmTile{128, 128, 1}}) {
    const Output out = run(Form::grouped, x, w, DType::bf16, {.tile = t}, {}, {0, 0, 0, 0, 0});
    for (std::int64_t r = 0; r < 20; ++r) ASSERT_TRUE(out.untouched(r, 0));
  }
}

template <class X>
void expect_every_group(const X& x, const Weights& w, DType type, const std::string& what) {
  const Output out = run(Form::every_group, x, w, type);
  for (std::int64_t g = 0; g < w.groups; ++g)
    EXPECT_LE(error_of(x, 0, x.rows(), x.cols == w.k ? 0 : g * w.k, w.k, w.group(g),
                       out.part(0, x.rows(), g * w.n, w.n), w.alpha_of(g, kAlpha), w.bias_of(g)),
              1)
        << what << " group " << g;
}

TEST_F(CudaGemm, OfEveryGroupIsRight) {
  std::uint64_t seed = 10 * fresh_seed();
  for (const Shape& s : {Shape{72, 80}, Shape{200, 256}, Shape{13, 48}})
    for (const std::int64_t m : {0, 1, 33, 150})
      for (const bool shared : {false, true}) {
        ++seed;
        const Weights w(5, s.n, s.k, seed % 3 ? GlobalScope::vector : GlobalScope::tensor, seed);
        const std::int64_t cols = shared ? s.k : 5 * s.k;
        expect_every_group(DenseX(m, cols, DType::bf16, seed), w, kTypes[seed % 3],
                           name_of(s, m, seed));
        expect_every_group(QuantizedX(m, cols, GlobalScope::vector, seed), w, DType::f32,
                           name_of(s, m, seed) + " quantized");
      }
}

TEST_F(CudaGemm, GivesTheSameBytesEveryTime) {
  const std::uint64_t seed = 4 * fresh_seed() + 3;
  const Weights w(1, 520, 2064, GlobalScope::vector, seed);
  const DenseX x(150, 2064, DType::bf16, seed);
  for (const GemmTile& t : all_tiles()) {
    const Output first = run(Form::one, x, w, DType::f32, {.tile = t});
    for (int repeat = 0; repeat < 5; ++repeat)
      EXPECT_TRUE(test::same_bits(run(Form::one, x, w, DType::f32, {.tile = t}).host, first.host))
          << name_of(t);
  }
}

TEST_F(CudaGemm, BatchInvariantGivesARowTheSameBitsWhateverTheNumberOfRows) {
  const std::uint64_t seed = 4 * fresh_seed() + 3;
  for (const Shape& s : {Shape{200, 720}, Shape{2112, 512}}) {
    const Weights w(1, s.n, s.k, GlobalScope::vector, seed);
    const DenseX x(600, s.k, DType::bf16, 3 * seed);  // no gaps
    const Output all = run(Form::one, x, w, DType::f32, {.batch_invariant = true});
    for (const std::int64_t rows : {1, 2, 7, 16, 33, 64, 129, 300, 513}) {
      DenseX few(rows, s.k, DType::bf16, 3);
      copy(x.part(600 - rows, rows, 0, s.k), few.memory.span());
      const Output part = run(Form::one, few, w, DType::f32, {.batch_invariant = true});
      for (std::int64_t r = 0; r < rows; ++r)
        ASSERT_EQ(
            std::memcmp(part.part(r, 1, 0, s.n).data, all.part(600 - rows + r, 1, 0, s.n).data,
                        static_cast<std::size_t>(s.n * 4)),
            0)
            << name_of(s, rows, seed);
    }
  }
}

TEST_F(CudaGemm, PacksTheBytesOfTheCpu) {
  std::uint64_t seed = fresh_seed();
  for (const std::int64_t n : {1, 24, 64, 200})
    for (const std::int64_t k : {16, 80, 256, 1040})
      for (const BlockAxis axis : {BlockAxis::rows, BlockAxis::columns})
        for (const ScaleLayout layout :
             {ScaleLayout::linear, ScaleLayout::tiled_128x4, ScaleLayout::tiled_8x4,
              ScaleLayout::packed_row_major, ScaleLayout::packed_mn_major}) {
          const GlobalScope scope = ++seed % 2 ? GlobalScope::vector : GlobalScope::tensor;
          QuantizedShape shape{
              .rows = 3 * n, .cols = k, .axis = axis, .layout = layout, .scope = scope};
          if (axis == BlockAxis::columns) std::swap(shape.rows, shape.cols);
          const QuantizedMatrix w = test::random_weights(shape, seed);
          const FragmentWeights cpu = pack_fragments(w.view(), 3);
          const FragmentWeights gpu = pack_fragments(to_device(w.view(), kGpu).view(), 3);
          ASSERT_EQ(test::bytes_of(gpu), test::bytes_of(cpu)) << n << "x" << k << " seed " << seed;
          ASSERT_EQ(test::bytes_of(to_device(cpu, kGpu)), test::bytes_of(cpu));
          for (std::int64_t g = 0; g < 3; ++g)
            ASSERT_TRUE(to_device(unpack_fragments(gpu, g).view(), {}) == unpack_fragments(cpu, g));
        }
}

TEST_F(CudaGemm, PackingFindsOrClearsBadScales) {
  QuantizedMatrix host = test::random_weights({.rows = 70, .cols = 96}, 3);
  for (const int bad : {0x7F, 0x80, 0xFF}) {
    host.scales()[69 * 6 + 5] = host.scales()[30 * 6 + 1] = static_cast<std::uint8_t>(bad);
    const QuantizedMatrix w = to_device(host.view(), kGpu);
    try {
      pack_fragments(w.view());
      ADD_FAILURE() << bad;
    } catch (const ValueError& e) {
      EXPECT_NE(std::string(e.what()).find("row 30, block 1"), std::string::npos) << e.what();
    }
    FragmentWeights packed(1, 70, 96, GlobalScope::tensor, kGpu);
    pack_fragments_into(w.view(), packed);
    QuantizedMatrix cleared = to_device(host.view(), {});
    cleared.scales()[69 * 6 + 5] = cleared.scales()[30 * 6 + 1] = 0;
    EXPECT_EQ(test::bytes_of(packed), test::bytes_of(pack_fragments(cleared.view())));
  }
}

TEST_F(CudaGemm, SeesOneWrongScale) {
  Weights w(1, 72, 480, GlobalScope::tensor, 4);
  const DenseX x(5, 480, DType::bf16, 3);
  const QuantizedMatrix right = to_device(w.q.view(), {});
  for (const std::int64_t at : {0, 17 * 30 + 9, 72 * 30 - 1}) {
    copy(right.view(), w.q.span());
    ++w.q.scales()[at];
    ASSERT_LE(w.q.scales()[at], E4M3::kMaxBits);
    w.packed = pack_fragments(to_device(w.q.view(), kGpu).view());
    const Output out = run(Form::one, x, w, DType::f32);
    EXPECT_GT(error_of(x, 0, 5, 0, 480, right.view(), out.part(0, 5, 0, 72), kAlpha, {}), 1);
    EXPECT_LE(error_of(x, 0, 5, 0, 480, w.q.view(), out.part(0, 5, 0, 72), kAlpha, {}), 1);
  }
}

TEST_F(CudaGemm, RefusesWhatItCannotDo) {
  const Weights w(2, 72, 64, GlobalScope::tensor, 4);
  const FragmentWeights one = pack_fragments(to_device(w.q.view(), kGpu).view());
  const auto on_gpu = [](DType t, std::int64_t r, std::int64_t c) { return Matrix(t, r, c, kGpu); };
  const Matrix x = on_gpu(DType::bf16, 4, 64);
  Matrix out = on_gpu(DType::f32, 4, 144), host(DType::f32, 4, 144);
  const Matrix x_host(DType::bf16, 4, 64), x_f32 = on_gpu(DType::f32, 4, 64),
                                           wide = on_gpu(DType::bf16, 4, 80);
  gemm_into(x.view(), one, out.span());
  EXPECT_THROW(gemm_into(x_host.view(), one, out.span()), DeviceError);
  EXPECT_THROW(gemm_into(x.view(), one, host.span()), DeviceError);
  EXPECT_THROW(gemm_into(x_f32.view(), one, out.span()), ValueError);
  EXPECT_THROW(gemm_into(wide.view(), one, out.span()), ShapeError);
  EXPECT_THROW(gemm_into(x.view(), w.packed, out.span()), ShapeError);
  EXPECT_THROW(gemm_into(x.view(), one, on_gpu(DType::f32, 4, 72).span()), ShapeError);
  EXPECT_THROW(gemm_into(x.view(), one, on_gpu(DType::f32, 5, 144).span()), ShapeError);
  MatrixView odd = wide.view();
  odd.cols = 64;
  odd.stride = 68;
  EXPECT_THROW(gemm_into(odd, one, out.span()), ShapeError);
  odd = wide.view();
  odd.cols = 64;
  odd.data = wide.data<char>() + 2;
  EXPECT_THROW(gemm_into(odd, one, out.span()), ShapeError);
  odd.data = nullptr;
  EXPECT_THROW(gemm_into(odd, one, out.span()), ShapeError);
  const Array<float> floats(std::vector<float>(3), kGpu);
  EXPECT_THROW(gemm_into(x.view(), one, out.span(), {.group_alpha = floats.span()}), ShapeError);
  EXPECT_THROW(gemm_into(x.view(), one, out.span(), {.bias = floats.span()}), ShapeError);
  EXPECT_THROW(gemm_into(x.view(), one, out.span(), {.tile = {24, 64, 1}}), ValueError);
  EXPECT_THROW(gemm_into(x.view(), one, out.span(), {.batch_invariant = true, .tile = {8, 64, 1}}),
               ValueError);
  const QuantizedMatrix q({.rows = 4, .cols = 64}, kGpu);
  EXPECT_THROW(gemm_into(q.view(), one, out.span(), {}), ShapeError);  // no workspace
  const Array<std::int32_t> ends({1, 2, 3}, kGpu);
  Matrix half = on_gpu(DType::f32, 4, 72);
  EXPECT_THROW(grouped_gemm_into(x.view(), w.packed, {}, ends.span(), half.span()), ShapeError);
  EXPECT_THROW(
      grouped_gemm_into(x.view(), w.packed, ends.span(), ends.span().first(2), half.span()),
      ShapeError);
  EXPECT_THROW(gemm_every_group_into(wide.view(), w.packed, out.span()), ShapeError);
  const FragmentWeights many(1025, 1, 16, GlobalScope::tensor, kGpu);
  const Array<std::int32_t> many_ends(std::vector<std::int32_t>(1025), kGpu);
  EXPECT_THROW(grouped_gemm_into(on_gpu(DType::bf16, 4, 16).view(), many, {}, many_ends.span(),
                                 on_gpu(DType::f32, 4, 1).span()),
               UnsupportedError);
  synchronize(kGpu);
}

/// Everything that may run in a graph, on memory that stays where it is.
struct GraphWork {
  static constexpr std::int64_t kM = 70, kN = 200, kK = 336, kG = 4;
  QuantizedMatrix w_source = test::poisoned({.rows = kN, .cols = kK}, kGpu);
  FragmentWeights w{kG, kN, kK, GlobalScope::tensor, kGpu},
      one{1, kN, kK, GlobalScope::tensor, kGpu};
  QuantizedMatrix q{{.rows = kM, .cols = kK, .scope = GlobalScope::vector}, kGpu};
  Matrix x{DType::bf16, kM, kK, kGpu}, space{DType::bf16, kM, kK, kGpu};
  Matrix y{DType::bf16, kM, kN, kGpu}, y4{DType::f32, kM, kN, kGpu};
  Matrix grouped{DType::bf16, kM, kN, kGpu}, every{DType::f16, kM, kG* kN, kGpu};
  Array<std::int32_t> ends{std::vector<std::int32_t>{5, 5, 40, 70}, kGpu};

  void fill(std::uint64_t seed) {
    copy(test::weights(kN, kK, seed).view(), w_source.span());
    copy(test::activations(kM, kK, seed, GlobalScope::vector).view(), q.span());
    copy(test::make(Fill::gaussian, kM, kK, seed, DType::bf16).view(), x.span());
    synchronize(kGpu);
  }
  void run(Stream stream) {
    for (std::int64_t g = 0; g < kG; ++g) pack_fragments_into(w_source.view(), w, g, stream);
    pack_fragments_into(w_source.view(), one, 0, stream);
    TensorCoreGemmOptions o{.stream = stream};
    gemm_into(x.view(), one, y.span(), o);
    grouped_gemm_into(x.view(), w, {}, ends.span(), grouped.span(), o);
    gemm_every_group_into(x.view(), w, every.span(), o);
    o.workspace = {space.data<std::byte>(), static_cast<std::size_t>(kM * kK * 2)};
    gemm_into(q.view(), one, y4.span(), o);
  }
  test::Result result() const {
    test::Result r;
    test::add(r, "y", y.view());
    test::add(r, "y4", y4.view());
    test::add(r, "grouped", grouped.view());
    test::add(r, "every", every.view());
    return r;
  }
};

TEST_F(CudaGemm, RunsInAGraph) {
  GraphWork work;
  cudaStream_t stream = nullptr;
  ASSERT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;
  ASSERT_EQ(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal), cudaSuccess);
  work.run({stream});
  ASSERT_EQ(cudaStreamEndCapture(stream, &graph), cudaSuccess);
  ASSERT_EQ(cudaGraphInstantiate(&executable, graph, 0), cudaSuccess);
  for (const std::uint64_t seed : {5, 6, 7}) {
    work.fill(seed);
    work.run({stream});
    ASSERT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
    const test::Result want = work.result();
    const Matrix poison =
        test::poisoned(DType::bf16, GraphWork::kM, GraphWork::kN, GraphWork::kN, kGpu).memory;
    for (int repeat = 0; repeat < 3; ++repeat) {
      copy(poison.view(), work.y.span(), {stream});
      copy(poison.view(), work.grouped.span(), {stream});
      ASSERT_EQ(cudaGraphLaunch(executable, stream), cudaSuccess);
      ASSERT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
      EXPECT_EQ(test::difference(work.result(), want), "") << "seed " << seed;
    }
    const Matrix host = to_device(work.x.view(), {}), y = to_device(work.y.view(), {});
    const QuantizedMatrix w = to_device(work.w_source.view(), {});
    EXPECT_LE(test::worst_tensor_core_error(host.view(), w.view(), y.view()), 1);
  }
  EXPECT_EQ(cudaGraphExecDestroy(executable), cudaSuccess);
  EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
  EXPECT_EQ(cudaStreamDestroy(stream), cudaSuccess);
}

}  // namespace
}  // namespace nvfp4
