// GEMMs in FP8 on a Hopper GPU, by cuBLASLt 12.9 or newer and by mma.sync: operands bit for bit,
// then results.
#include <cuda_runtime_api.h>
#include <gmock/gmock.h>

#include "backends/cuda/gemm/fp8/fp8.h"
#include "backends/cuda/gemm/fp8/stage.h"
#include "backends/cuda/gemm/make_arguments.h"
#include "backends/cuda/gemm/sm100/cublaslt.h"
#include "backends/reference/fp8.h"
#include "quantizers/fp8_rows.h"
#include "tensor_core_cases.h"

namespace nvfp4::test::tensor_core_arithmetic_test {

class CudaArithmetic : public CudaGemm {
 protected:
  void SetUp() override {
    CudaGemm::SetUp();
    if (IsSkipped()) return;
    if (const std::string reason = cuda::cublaslt::why_unusable_for_fp8(); !reason.empty())
      GTEST_SKIP() << "FP8 kernels " << reason;
  }
};

template <class T>
std::vector<T> on_host(const Matrix& gpu, std::int64_t offset, std::int64_t count) {
  const Matrix host = to_device(gpu.view(), {});
  const auto* from = reinterpret_cast<const T*>(host.data<std::uint8_t>() + offset);
  return {from, from + count};
}
/// Memory of the GPU, every byte 0xAA.
Matrix poisoned_bytes(std::int64_t bytes) {
  return poisoned(DType::f32, 1, ceil_div(bytes, 4), ceil_div(bytes, 4), kGpu).memory;
}
void expect_equal(const std::vector<float>& got, const std::vector<float>& want) {
  ASSERT_EQ(got.size(), want.size());
  for (std::size_t i = 0; i < want.size(); ++i)
    EXPECT_TRUE(got[i] == want[i] || (std::isnan(got[i]) && std::isnan(want[i])))
        << i << ": " << got[i] << " " << want[i];
}

constexpr std::tuple<int, int, int> kSizes[] = {
    {1, 16, 16}, {3, 48, 80}, {33, 144, 208}, {7, 64, 1040}, {2, 208, 8192}};

TEST_F(CudaArithmetic, RowsOfXAreThoseOfTheReference) {
  const std::uint64_t seed = fresh_seed();
  for (const auto& [m, n, k] : kSizes)
    for (const DType type : {DType::bf16, DType::f16})
      for (const Fill fill : {Fill::gaussian, Fill::tiny, Fill::huge, Fill::zero, Fill::special}) {
        const Matrix x = strided(fill, m, k, 8, seed, type);
        const Placed on_gpu = placed(x, k, kGpu);
        MatrixView rows = x.view();
        rows.cols = k;
        const reference::Fp8Rows want = reference::fp8_rows(rows);
        const std::int64_t at = round_up(m * k, 256);
        const Matrix to = poisoned_bytes(at + m * 4);
        auto* const codes = const_cast<std::uint8_t*>(to.data<std::uint8_t>());
        cuda::fp8::quantize_rows(on_gpu.span, codes, reinterpret_cast<float*>(codes + at), nullptr);
        synchronize(kGpu);
        EXPECT_EQ(on_host<std::uint8_t>(to, 0, m * k), want.codes) << m << " " << k << " " << seed;
        expect_equal(on_host<float>(to, at, m), want.factors);
      }
}

TEST_F(CudaArithmetic, RowsOfWAreThoseOfTheReference) {
  const std::uint64_t seed = fresh_seed();
  for (const auto& [m, n, k] : kSizes) {
    const QuantizedMatrix w = random_weights({.rows = n, .cols = k}, seed);
    const PackedWeights packed = pack_weights(to_device(w.view(), kGpu).view());
    const reference::Fp8Rows want = reference::fp8_weights(w.view());
    const std::int64_t powers = round_up(n * k, 256), factors = powers + round_up(n * 4, 256);
    const Matrix to = poisoned_bytes(factors + n * 4);
    auto* const codes = const_cast<std::uint8_t*>(to.data<std::uint8_t>());
    cuda::FragmentGemmJob job{.w = &packed.impl()};
    job.x = MatrixView(codes, DType::bf16, 1, k, kDense, kGpu);
    cuda::fp8::decode_weights(cuda::arguments_of(job),
                              {.codes = codes,
                               .powers = reinterpret_cast<float*>(codes + powers),
                               .factors = reinterpret_cast<float*>(codes + factors)},
                              nullptr);
    synchronize(kGpu);
    EXPECT_EQ(on_host<std::uint8_t>(to, 0, n * k), want.codes) << n << " " << k << " seed " << seed;
    expect_equal(on_host<float>(to, powers, n), want.factors);
    std::vector<float> all;
    for (const float f : want.factors) all.push_back(f * w.global_scale()[0]);
    expect_equal(on_host<float>(to, factors, n), all);
  }
}

constexpr const cuda::Architecture* kBoth[] = {&cuda::fp8::kArchitecture,
                                               &cuda::fp8::kMmaArchitecture};

/// Runs a GEMM of any size in FP8. Two rows of out behind the result must stay as they are.
Output multiply_fp8(const cuda::Architecture* kernels, const DenseX& x, const Weights& w,
                    DType type) {
  const Placed out = poisoned(type, x.rows() + 2, w.n, w.n + 8, kGpu);
  MatrixSpan span = out.span;
  span.rows = x.rows();
  const Array<float> alpha(w.alpha, kGpu), bias(w.bias, kGpu);
  const cuda::Architecture* const only[] = {kernels};
  const cuda::KernelPlan plan =
      cuda::plan_kernels({.n = w.n, .k = w.k, .m = x.rows()},
                         {.major = 9, .minor = 0, .multiprocessors = 132}, false, only);
  const std::int64_t bytes = only[0]->staging_bytes(plan.problem);
  const Matrix staging = poisoned_bytes(bytes);
  x.on_gpu({}, [&](const MatrixView& view, const GpuOptions&) {
    cuda::FragmentGemmJob job{.w = &w.packed.impl(), .out = span};
    job.x = view;
    job.alpha = kAlpha;
    job.group_alpha = w.alpha.empty() ? nullptr : alpha.span().data();
    job.bias = w.bias.empty() ? nullptr : bias.span().data();
    job.staging = {const_cast<std::byte*>(staging.data<std::byte>()),
                   static_cast<std::size_t>(bytes)};
    only[0]->launch(plan, job, {});
  });
  Output result{to_device(out.memory.view(), {}), x.rows(), w.n};
  result.expect_untouched_outside();
  return result;
}

/// Returns the largest error in units of its bound. The tensor cores align 32 products and the
/// previous sum to the largest exponent E of them and truncate each below 2^(E - 13). Sums start
/// anew for each 128 of K unless accumulation is fast. The bias is rounded to the type of out.
double worst_fp8_error(const DenseX& x, const Weights& w, const Output& out, DType type) {
  const reference::Fp8Rows a = reference::fp8_rows(x.part(0, x.rows(), 0, w.k));
  const reference::Fp8Rows b = reference::fp8_weights(w.group(0));
  const double rounding = type == DType::bf16 ? 0x1p-9 : 0x1p-12;
  const std::int64_t interval = cuda::fp8::kFastAccumulation ? w.k : 128;
  double worst = 0;
  for (std::int64_t m = 0; m < x.rows(); ++m)
    for (std::int64_t n = 0; n < w.n; ++n) {
      double sum = 0, part = 0, bound = 0;
      for (std::int64_t k = 0; k < w.k; k += 32) {
        if (k % interval == 0) sum += std::exchange(part, 0);
        double largest = std::fabs(part);
        for (std::int64_t i = k; i < std::min(k + 32, w.k); ++i) {
          const double p =
              static_cast<double>(E4M3{a.codes[static_cast<std::size_t>(m * w.k + i)]}.to_float()) *
              static_cast<double>(E4M3{b.codes[static_cast<std::size_t>(n * w.k + i)]}.to_float());
          largest = std::max(largest, std::fabs(p));
          part += p;
        }
        bound += 33 * 0x1p-13 * std::max(largest, std::fabs(part));
      }
      sum += part;
      const double factor = static_cast<double>(a.factors[static_cast<std::size_t>(m)]) *
                            static_cast<double>(b.factors[static_cast<std::size_t>(n)]) *
                            static_cast<double>(w.alpha_of(0, kAlpha)) *
                            static_cast<double>(w.group(0).global_of(n));
      const double bias =
          w.bias.empty() ? 0 : static_cast<double>(w.bias[static_cast<std::size_t>(n)]);
      const double want = sum * factor + bias;
      const double got = static_cast<double>(out.part(0, x.rows(), 0, w.n).at(m, n));
      const double most = bound * std::fabs(factor) +
                          (rounding + 4 * kUnit) * (std::fabs(want) + 2 * std::fabs(bias)) +
                          0x1p-24;
      worst = std::max(worst, std::fabs(got - want) / most);
      if (std::isnan(got)) return got;
    }
  return worst;
}

TEST_F(CudaArithmetic, ResultsAreWithinTheirBound) {
  std::uint64_t seed = 10 * fresh_seed();
  for (const DType type : {DType::bf16, DType::f16})
    for (const auto& [m, n, k] : {std::tuple{1, 16, 64}, {7, 80, 96}, {130, 144, 1040}})
      for (int i = 0; i < 4; ++i) {
        ++seed;
        const Weights w(1, n, k, seed % 2 ? GlobalScope::vector : GlobalScope::tensor, seed);
        const DenseX x(m, k, seed % 5 < 2 ? DType::f16 : DType::bf16, seed);
        for (const cuda::Architecture* kernels : kBoth)
          EXPECT_LE(worst_fp8_error(x, w, multiply_fp8(kernels, x, w, type), type), 1)
              << kernels->kernels[0].n << " " << name_of({n, k}, m, seed);
      }
}

/// Sums of small integers are exact, so layouts, factors and bias must be right.
TEST_F(CudaArithmetic, SmallIntegersHaveExactResults) {
  std::mt19937 random(static_cast<unsigned>(fresh_seed()));
  for (const auto& [m, n, k] : {std::tuple{1, 16, 32}, {5, 48, 208}, {130, 272, 256}}) {
    Weights w(1, n, k, GlobalScope::vector, 4);
    for (std::int64_t i = 0; i < w.q.shape().scale_bytes(); ++i)
      w.q.scales()[i] = static_cast<std::uint8_t>(i / (k / 16) % 3 == 0 ? 0x38 : 0x40);
    for (std::int64_t i = 0; i < n; ++i)
      w.q.global_scale()[i] = std::ldexp(1.0f, static_cast<int>(i % 5) - 4);
    w.bias.clear();
    for (std::int64_t i = 0; i < n; ++i)
      w.bias.push_back(static_cast<float>(static_cast<int>(i % 7) - 3) * kAlpha);
    w.packed = pack_weights(to_device(w.q.view(), kGpu).view());
    DenseX x(m, k, DType::bf16, 3);
    for (std::int64_t r = 0; r < m; ++r)
      for (std::int64_t c = 0; c < k; ++c)
        set(x.memory.span(), r, c, static_cast<float>(static_cast<int>(random() % 5) - 2));
    const Table xs = values_of(x.part(0, m, 0, k)), ws = values_of(w.q.view());
    const Output outs[] = {multiply_fp8(kBoth[0], x, w, DType::bf16),
                           multiply_fp8(kBoth[1], x, w, DType::bf16)};
    for (std::int64_t r = 0; r < m; ++r)
      for (std::int64_t c = 0; c < n; ++c) {
        double sum = 0;
        for (std::int64_t i = 0; i < k; ++i) sum += xs(r, i) * ws(c, i);
        const auto y =
            static_cast<float>(sum * static_cast<double>(kAlpha * w.q.global_scale()[c]) +
                               static_cast<double>(w.bias[static_cast<std::size_t>(c)]));
        for (const Output& out : outs)
          ASSERT_EQ(out.part(r, 1, c, 1).at(0, 0), BF16::from_float(y).to_float())
              << &out - outs << " " << r << " " << c;
      }
  }
}

TEST_F(CudaArithmetic, RowWithoutNumbersIsNaNAlone) {
  const Weights w(1, 64, 128, GlobalScope::tensor, 4);
  DenseX x(5, 128, DType::bf16, 3);
  set(x.memory.span(), 1, 7, INFINITY);
  set(x.memory.span(), 3, 0, NAN);
  for (const cuda::Architecture* kernels : kBoth) {
    const Output out = multiply_fp8(kernels, x, w, DType::bf16);
    for (std::int64_t r = 0; r < 5; ++r)
      for (std::int64_t c = 0; c < 64; ++c)
        EXPECT_EQ(std::isnan(out.part(r, 1, c, 1).at(0, 0)), r == 1 || r == 3) << r << " " << c;
  }
}

/// Runs a plan by a graph and alone.
void expect_same_in_graph(const GemmPlan& plan, const Weights& w, std::int64_t m) {
  const Matrix x = to_device(make(Fill::gaussian, m, w.k, 3, DType::bf16).view(), kGpu);
  Matrix out(DType::bf16, m, w.n, kGpu), replayed(DType::bf16, m, w.n, kGpu);
  Matrix space = to_device(Matrix(DType::f32, 1, plan.workspace_bytes() / 4).view(), kGpu);
  const auto run = [&](Matrix& to, Stream stream) {
    gemm(plan, {.x = x.view(), .weights = w.packed, .out = to.span()},
         {space.data<std::byte>(), static_cast<std::size_t>(plan.workspace_bytes())}, stream);
  };
  cudaStream_t stream = nullptr;
  ASSERT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
  ASSERT_EQ(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal), cudaSuccess);
  run(replayed, {stream});
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;
  ASSERT_EQ(cudaStreamEndCapture(stream, &graph), cudaSuccess);
  ASSERT_EQ(cudaGraphInstantiate(&executable, graph, 0), cudaSuccess);
  ASSERT_EQ(cudaGraphLaunch(executable, stream), cudaSuccess);
  ASSERT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
  run(out, {});
  synchronize(kGpu);
  EXPECT_TRUE(same_bits(to_device(out.view(), {}), to_device(replayed.view(), {})));
  // The part that other plans expect to be zero.
  EXPECT_THAT(on_host<std::uint8_t>(space, 0, 4096), testing::Each(0));
  EXPECT_EQ(cudaGraphExecDestroy(executable), cudaSuccess);
  EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
  EXPECT_EQ(cudaStreamDestroy(stream), cudaSuccess);
}

TEST_F(CudaArithmetic, PlansRunInAGraph) {
  const char* const given = std::getenv("NVFP4_GEMM_ARCHITECTURE");
  const std::string before = given == nullptr ? "" : given;
  const Weights w(1, 2048, 2048, GlobalScope::tensor, 4);
  const std::int64_t fewest = cuda::fp8::fewest_rows(w.n, w.k, {.major = 9, .minor = 0});
  const struct {
    const char *architecture, *few, *many;
  } kCases[] = {{"", "sm90_", "fp8_cublaslt_m128n128k128"},
                {"sm80", "sm80_", "fp8_mma_m128n256k64"}};
  std::int64_t other = 0;  // plans of one description are kept
  for (const auto& c : kCases) {
    setenv("NVFP4_GEMM_ARCHITECTURE", c.architecture, 1);
    GemmDescription d{.m = fewest - ++other, .arithmetic = Arithmetic::fp8};
    EXPECT_THAT(plan_gemm(w.packed, d).kernel(), testing::StartsWith(c.few));
    d.m = fewest + other;
    const GemmPlan plan = plan_gemm(w.packed, d);
    EXPECT_EQ(plan.kernel(), c.many);
    expect_same_in_graph(plan, w, d.m);
  }
  setenv("NVFP4_GEMM_ARCHITECTURE", before.c_str(), 1);
}

}  // namespace nvfp4::test::tensor_core_arithmetic_test
