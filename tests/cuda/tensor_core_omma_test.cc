// Products of NVFP4 by NVFP4 as Blackwell's tensor cores make them, through the library: on a
// Hopper GPU, with the twin of the instruction. Skipped without one. The kernels' bits:
// tests/sm120.
#include "backends/cuda/gemm/sm120/launch.h"
#include "sm120/twin/twin.h"
#include "tensor_core_cases.h"

namespace nvfp4::cuda {
extern const Architecture kSm120;
}

namespace nvfp4::test::tensor_core_omma_test {

/// Returns the architecture sm120 for a Hopper GPU, with the twin of its instruction.
const cuda::Architecture& twin_architecture() {
  static const cuda::Architecture twin = [] {
    cuda::Architecture a = cuda::kSm120;
    a.name = "sm120-twin";
    a.supports = [](const cuda::Capability& gpu) { return gpu.major == 9; };
    a.launch = [](const cuda::KernelPlan& plan, const cuda::FragmentGemmJob& job,
                  std::span<std::byte> workspace) {
      namespace sm120 = cuda::sm120;
      sm120::launch_by(plan.problem.swiglu ? sm120::twin_gemm_swiglu : sm120::twin_gemm, plan, job,
                       workspace);
    };
    return a;
  }();
  return twin;
}

class CudaOmma : public CudaGemm {
 protected:
  void SetUp() override {
    cuda::set_last_architecture(&twin_architecture());
    setenv(kVariable, "sm120-twin", 1);
    CudaGemm::SetUp();
  }
  void TearDown() override {
    cuda::set_last_architecture(nullptr);
    if (before_.empty())
      unsetenv(kVariable);
    else
      setenv(kVariable, before_.c_str(), 1);
  }

 private:
  static constexpr const char* kVariable = "NVFP4_GEMM_ARCHITECTURE";
  std::string before_ = std::getenv(kVariable) != nullptr ? std::getenv(kVariable) : "";
};

TEST_F(CudaOmma, EveryKernelIsRight) {
  std::uint64_t seed = 10 * fresh_seed();
  std::vector<KernelConfig> kernels = {{}};
  for (const KernelConfig& t : cuda::kernel_configs(tested_architecture().kernels))
    if (tested_architecture().why_impossible({.k = 64, .quantized_x = true}, t).empty())
      kernels.push_back(t);
  ASSERT_GT(kernels.size(), 6u);
  for (const KernelConfig& t : kernels)
    for (const Shape& s : {Shape{72, 64}, Shape{13, 128}, Shape{200, 704}})
      for (const std::int64_t m : {1, 17, 130}) {
        ++seed;
        const Weights w(1, s.n, s.k, seed % 3 ? GlobalScope::vector : GlobalScope::tensor, seed);
        const QuantizedX x(m, s.k, seed % 2 ? GlobalScope::vector : GlobalScope::tensor, seed);
        expect_product(x, w, kTypes[seed % 3], {.kernel = t}, static_cast<std::int64_t>(seed % 2),
                       name_of(t) + " " + name_of(s, m, seed));
      }
}

TEST_F(CudaOmma, ScalesOfXMayLieInAnyLayout) {
  const std::uint64_t seed = fresh_seed();
  const Weights w(1, 72, 448, GlobalScope::tensor, seed);
  const Matrix values = strided(Fill::gaussian, 150, 448, 0, seed, DType::bf16);
  Matrix first;
  for (const ScaleLayout layout :
       {ScaleLayout::linear, ScaleLayout::tiled_128x4, ScaleLayout::tiled_8x4,
        ScaleLayout::packed_row_major, ScaleLayout::packed_mn_major}) {
    const QuantizedMatrix q =
        quantize(values.view(), {.quantizer = Quantizer::max, .layout = layout});
    const QuantizedMatrix x = to_device(q.view(), kGpu);
    Matrix out(DType::f32, 150, 72, kGpu);
    multiply(x.view(), w.packed, out.span());
    synchronize(kGpu);
    Matrix host = to_device(out.view(), {});
    if (layout == ScaleLayout::linear)
      first = std::move(host);
    else
      EXPECT_TRUE(same_bits(host, first)) << layout_name(layout);
  }
}

TEST_F(CudaOmma, GroupsHaveRowsOfTheirOwnOrAll) {
  const std::uint64_t seed = fresh_seed();
  for (const std::int64_t k : {64, 320}) {
    const Weights w(3, 72, k, GlobalScope::vector, seed);
    const QuantizedX x(200, k, GlobalScope::vector, seed);
    const std::vector<std::int32_t> ends = {70, 70, 199};
    const Output out = run(GemmForm::grouped, x, w, DType::bf16, {}, {}, ends);
    const QuantizedX of_groups(40, 3 * k, GlobalScope::vector, seed);
    const Output each = run(GemmForm::every_group, of_groups, w, DType::f32);
    for (std::int64_t g = 0; g < 3; ++g) {
      const auto i = static_cast<std::size_t>(g);
      const std::int64_t from = g == 0 ? 0 : ends[i - 1], rows = ends[i] - from;
      EXPECT_LE(error_of(x, from, rows, 0, k, w.group(g), out.part(from, rows, 0, 72),
                         w.alpha_of(g, kAlpha), w.bias_of(g)),
                1)
          << "group " << g << " seed " << seed;
      EXPECT_LE(error_of(of_groups, 0, 40, g * k, k, w.group(g), each.part(0, 40, g * 72, 72),
                         w.alpha_of(g, kAlpha), w.bias_of(g)),
                1)
          << "columns of group " << g << " seed " << seed;
    }
    EXPECT_TRUE(out.untouched(199, 0));
  }
}

TEST_F(CudaOmma, UnsupportedProblemsAreRefusedByName) {
  for (const GemmDescription& d :
       {GemmDescription{.m = 4, .n = 64, .k = 64},
        GemmDescription{.m = 4, .n = 64, .k = 80, .scheme = Scheme::w4a4}})
    EXPECT_THROW(plan_gemm(d, kGpu), UnsupportedError);
}

}  // namespace nvfp4::test::tensor_core_omma_test
