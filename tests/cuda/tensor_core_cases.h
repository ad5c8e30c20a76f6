#pragma once

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <type_traits>
#include <variant>
#include <vector>

#include "backends/cuda/gemm/plan.h"
#include "backends/cuda/gemm/sm90/cost_model.h"
#include "fragment_cases.h"
#include "nvfp4/error.h"
#include "ops/run_gemm.h"
#include "placed.h"
#include "test_stride.h"

/// Products on tensor cores and FP64 ones of the unpacked weights.
namespace nvfp4::test {

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

using cuda::KernelConfig;

/// Whose kernels are tested: those of NVFP4_GEMM_ARCHITECTURE, or of the GPU.
inline const cuda::Architecture& tested_architecture() {
  const char* const name = std::getenv("NVFP4_GEMM_ARCHITECTURE");
  for (const cuda::Architecture* a : cuda::architectures())
    if (name != nullptr && a->name == name) return *a;
  return *cuda::architectures().front();
}
/// For tests of what the kernels of sm_90 alone have.
inline bool tests_others() { return &tested_architecture() != cuda::architectures().front(); }
/// Returns the name of the kernel with that configuration, or of the first one with its tile.
inline std::string kernel_name_of(const KernelConfig& kernel) {
  const cuda::Architecture& a = tested_architecture();
  return cuda::find_kernel(a.kernels, kernel) != nullptr ? cuda::kernel_name(kernel, a)
                                                         : cuda::kernel_name(kernel);
}

/// The arguments of a GEMM other than x, weights and out.
struct GpuOptions {
  float alpha = 1.0f;
  std::span<const float> group_alpha = {}, bias = {};
  bool batch_invariant = false, row_ends_settled = false;
  KernelConfig kernel = {};             ///< m = 0: chosen
  std::span<std::byte> workspace = {};  ///< with room for the sums of stream-K; zero at first
  GemmForm form = GemmForm::dense;
  std::span<const std::int32_t> row_ends = {}, row_starts = {};
  const Routing* routing = nullptr;
  Epilogue epilogue = Epilogue::none;
  float limit = std::numeric_limits<float>::infinity();
  GlobalScales out_global = {};
  Stream stream = {};
};

using GpuResult = std::variant<MatrixSpan, QuantizedSpan>;

template <class X>
GemmDescription description_of(const X& x, const PackedWeights& w, const GpuResult& out,
                               const GpuOptions& o) {
  GemmDescription d{.form = o.routing != nullptr ? GemmForm::routed : o.form,
                    .scheme = scheme_of(x),
                    .x = dtype_of(x),
                    .epilogue = o.epilogue,
                    .swiglu_limit = o.limit,
                    .batch_invariant = o.batch_invariant,
                    .max_workspace_bytes = tests_others() && o.kernel.split_k > 1
                                               ? std::int64_t{1} << 30
                                               : std::ssize(o.workspace)};
  std::int64_t x_rows = 0;
  if constexpr (std::is_same_v<X, MatrixView>)
    x_rows = x.rows;
  else
    x_rows = x.shape.rows;
  if (const MatrixSpan* y = std::get_if<MatrixSpan>(&out)) {
    d.m = y->rows;
    d.out = y->dtype;
  } else {
    d.m = std::get<QuantizedSpan>(out).shape.rows;
  }
  if (o.routing != nullptr) {
    d.top_k = o.routing->top_k;
    d.shared_x = x_rows == o.routing->rows && x_rows != d.m;
  }
  if (d.form == GemmForm::every_group) d.shared_x = cols_of(x) == w.cols();
  if (o.kernel.m != 0) d.kernel = kernel_name_of(o.kernel);
  return d;
}

/// Enqueues a product on the GPU; waits where it needs a workspace and has none.
template <class X>
void multiply(const X& x, const PackedWeights& w, const GpuResult& out, const GpuOptions& o = {}) {
  const GemmPlan plan = plan_gemm(w, description_of(x, w, out, o));
  GemmArguments a{.x = x,
                  .weights = w,
                  .out = out,
                  .alpha = o.alpha,
                  .group_alpha = o.group_alpha,
                  .bias = o.bias,
                  .row_ends = o.row_ends,
                  .row_starts = o.row_starts,
                  .out_global = o.out_global};
  if (o.routing != nullptr) a.routing = *o.routing;
  const auto run = [&](std::span<std::byte> workspace) {
    run_gemm("gemm", plan, a, workspace, o.stream, o.row_ends_settled);
  };
  const std::int64_t bytes = plan.workspace_bytes();
  if (bytes <= std::ssize(o.workspace)) return run(o.workspace);
  Matrix host(DType::f32, 1, bytes / 4 + 4);  // zeros, and a guard
  std::memset(host.data<char>() + bytes, 0xAA, 16);
  Matrix space = to_device(host.view(), kGpu);
  run({space.data<std::byte>(), static_cast<std::size_t>(bytes)});
  synchronize(kGpu, o.stream);
  const Matrix after = to_device(space.view(), {});
  for (std::int64_t i = bytes; i < bytes + 16; ++i)
    ASSERT_EQ(after.data<std::uint8_t>()[i], 0xAA) << "behind the workspace";
}

/// An operand of a product on the host, and how the product takes it.
struct DenseX {
  Matrix memory;  ///< a gap of NaN behind each row
  std::int64_t cols;

  DenseX(std::int64_t rows, std::int64_t k, DType type, std::uint64_t seed)
      : memory(
            strided(Fill::gaussian, rows, k, 8 * static_cast<std::int64_t>(seed % 3), seed, type)),
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
  void on_gpu(const GpuOptions& o, F&& f) const {
    const Placed x = placed(memory, cols, kGpu);
    f(MatrixView(x.span), o);
    synchronize(kGpu, o.stream);
  }
};

struct QuantizedX {
  QuantizedMatrix q;
  std::int64_t cols;

  QuantizedX(std::int64_t rows, std::int64_t k, GlobalScope scope, std::uint64_t seed)
      : q(activations(rows, k, seed, scope)), cols(k) {}
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
  void on_gpu(const GpuOptions& o, F&& f) const {
    const QuantizedMatrix x = to_device(q.view(), kGpu);
    f(x.view(), o);
    synchronize(kGpu, o.stream);
  }
};

inline double error_of(const DenseX& x, std::int64_t row, std::int64_t n, std::int64_t col,
                       std::int64_t k, const QuantizedView& w, const MatrixView& out, float alpha,
                       std::span<const float> bias) {
  return worst_tensor_core_error(x.part(row, n, col, k), w, out, alpha, bias);
}
inline double error_of(const QuantizedX& x, std::int64_t row, std::int64_t n, std::int64_t col,
                       std::int64_t k, const QuantizedView& w, const MatrixView& out, float alpha,
                       std::span<const float> bias) {
  const QuantizedMatrix part = x.copy_of(row, n, col, k);
  return worst_tensor_core_error(part.view(), w, out, alpha, bias);
}

/// G matrices [N, K] with all that may go with them.
struct Weights {
  std::int64_t groups, n, k;
  QuantizedMatrix q;  ///< [G · N, K]
  std::vector<float> alpha, bias;
  PackedWeights packed;

  Weights(std::int64_t g, std::int64_t n_, std::int64_t k_, GlobalScope scope, std::uint64_t seed)
      : groups(g), n(n_), k(k_), q(weights(g * n_, k_, seed, scope)) {
    if (seed % 2) alpha = random_floats(static_cast<std::size_t>(g), seed + 1);
    if (seed / 2 % 2) bias = random_floats(static_cast<std::size_t>(g * n_), seed + 2);
    packed = pack_weights(to_device(q.view(), kGpu).view(), {.groups = g});
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

inline constexpr float kAlpha = 0.75f;

/// Runs one product on the GPU.
template <class X>
Output run(GemmForm form, const X& x, const Weights& w, DType type, GpuOptions o = {},
           const std::vector<std::int32_t>& starts = {}, const std::vector<std::int32_t>& ends = {},
           std::int64_t gap = 5) {
  const std::int64_t cols = form == GemmForm::every_group ? w.groups * w.n : w.n;
  Placed out = poisoned(type, x.rows() + 2, cols, cols + gap, kGpu);
  MatrixSpan span = out.span;
  span.rows = x.rows();
  const Array<float> alpha(w.alpha, kGpu), bias(w.bias, kGpu);
  const Array<std::int32_t> from(starts, kGpu), to(ends, kGpu);
  o.alpha = kAlpha;
  o.row_ends_settled = x.rows() % 2 == 0;  // copies are complete
  o.group_alpha = alpha.span();
  o.bias = bias.span();
  o.form = form;
  o.row_ends = to.span();
  o.row_starts = from.span();
  x.on_gpu(o, [&](auto view, const GpuOptions& all) { multiply(view, w.packed, span, all); });
  Output result{to_device(out.memory.view(), {}), x.rows(), cols};
  result.expect_untouched_outside();
  return result;
}

template <class X>
void expect_product(const X& x, const Weights& w, DType type, const GpuOptions& o, std::int64_t gap,
                    const std::string& what) {
  const Output out = run(GemmForm::dense, x, w, type, o, {}, {}, gap);
  EXPECT_LE(error_of(x, 0, x.rows(), 0, w.k, w.group(0), out.part(0, x.rows(), 0, w.n),
                     w.alpha_of(0, kAlpha), w.bias_of(0)),
            1)
      << what;
}

struct Shape {
  std::int64_t n, k;
};
inline constexpr Shape kShapes[] = {{8, 16},    {72, 80},   {13, 64},
                                    {130, 256}, {200, 720}, {64, 1040}};
inline constexpr DType kTypes[] = {DType::f32, DType::bf16, DType::f16};
inline constexpr std::int64_t kRows[] = {0, 1, 7, 17, 33, 65, 129, 300};

inline std::string name_of(const Shape& s, std::int64_t m, std::uint64_t seed) {
  return std::to_string(m) + " x " + std::to_string(s.n) + " x " + std::to_string(s.k) + " seed " +
         std::to_string(seed);
}

/// Under a tool (test_stride()) each call takes another fifth of the tiles.
inline std::vector<KernelConfig> part_of(std::vector<KernelConfig> tiles) {
  static std::size_t calls = 0;
  if (test_stride() == 1) return tiles;
  const std::size_t first = calls++ % 5;
  std::vector<KernelConfig> part;
  for (std::size_t i = first; i < tiles.size(); i += 5) part.push_back(tiles[i]);
  return part;
}

/// Returns the configurations for depth k, including those with another kernel for overlapped
/// launches.
inline std::vector<KernelConfig> all_tiles(std::int64_t k, bool swiglu = false) {
  std::vector<KernelConfig> tiles;
  const cuda::Architecture& a = tested_architecture();
  if (a.kernels.data() != cuda::kSm90Kernels) {
    for (const KernelConfig& c : cuda::kernel_configs(a.kernels))
      if (a.why_impossible({.k = k, .swiglu = swiglu}, c).empty()) tiles.push_back(c);
    return part_of(std::move(tiles));
  }
  for (const cuda::KernelConfig& c : cuda::kernel_configs(cuda::kSm90Kernels))
    if (cuda::is_possible({.k = k, .swiglu = swiglu}, c)) {
      tiles.push_back(c);
      cuda::KernelConfig early = c;
      early.launch_dependents_step = 1;
      if (cuda::leaves_room(early) != cuda::leaves_room(c)) tiles.push_back(early);
    }
  return part_of(std::move(tiles));
}

/// Reports whether two kernels add in the same order.
inline bool same_order(const KernelConfig& a, const KernelConfig& b) {
  const auto order = [](const KernelConfig& t) {
    return !tests_others() ? std::string{} : tested_architecture().summation({}, t);
  };
  return order(a) == order(b);
}

/// Returns the configurations whose tiles TMA stores.
inline std::vector<KernelConfig> whole_tiles() {
  std::vector<KernelConfig> tiles;
  for (const KernelConfig& t : all_tiles(64))
    if (cuda::has_tma_store(t)) tiles.push_back(t);
  return tiles;
}

/// Stages of weights that are brought early; 0: all.
inline int stages(int early) { return early == 0 ? cuda::kAllStages : early; }

inline std::string name_of(const KernelConfig& t) {
  return t.m == 0 ? "the chosen kernel" : kernel_name_of(t);
}

}  // namespace nvfp4::test
