// The kernels of NVFP4 by NVFP4 for compute capability 12.x: plans, without a GPU.
#include "backends/cuda/gemm/plan.h"
#include "backends/cuda/gemm/sm100/library_reason.h"
#include "backends/cuda/gemm/sm120/cost_model.h"
#include "testing.h"

namespace nvfp4::cuda::gemm_plan_sm120_test {

using testing::Contains;
using testing::HasSubstr;
using testing::Not;

constexpr Capability kRtx5090{.major = 12, .minor = 0, .multiprocessors = 170};
constexpr Capability kGb10{.major = 12, .minor = 1, .multiprocessors = 48};
constexpr Capability kH200{.major = 9, .minor = 0, .multiprocessors = 132};

KernelProblem problem(std::int64_t n, std::int64_t k, std::int64_t m) {
  return {.n = n, .k = k, .m = m, .quantized_x = true};
}

TEST(GemmPlanSm120, TakesOnlyFp4OnItsGpus) {
  const auto taken = [](const KernelProblem& p, const Capability& gpu) {
    return plan_kernels(p, gpu).architecture->name;
  };
  const KernelProblem p = problem(4096, 7168, 100);
  EXPECT_EQ(taken(p, kRtx5090), "sm120");
  EXPECT_EQ(taken(p, kGb10), "sm120");
  EXPECT_EQ(taken(p, kH200), "sm90");
  const auto installed = std::exchange(sm100::library_reason(), [] { return std::string("no"); });
  EXPECT_EQ(taken(p, {.major = 10, .minor = 0, .multiprocessors = 148}), "sm80");
  sm100::library_reason() = installed;
  for (const auto change :
       {+[](KernelProblem& q) { q.quantized_x = false; }, +[](KernelProblem& q) { q.k = 7184; }}) {
    KernelProblem q = p;
    change(q);
    EXPECT_EQ(taken(q, kRtx5090), "sm80");
  }
  KernelProblem routed = problem(4096, 7168, 1);
  routed.groups = 8;
  routed.routed = true;
  EXPECT_THAT(describe(plan_kernels(routed, kRtx5090)),
              HasSubstr("sm120_routed_m1n64k128, 512 blocks"));
}

TEST(GemmPlanSm120, EveryKernelHasANameThatFindsIt) {
  const Architecture& sm120 = architecture_of("sm120_mma_m128n128k64");
  for (const KernelConfig& t : kernel_configs(sm120.kernels)) {
    const std::string name = kernel_name(t, sm120);
    EXPECT_EQ(kernel_config(name), t) << name;
    EXPECT_EQ(&architecture_of(name), &sm120) << name;
  }
}

/// The kernels are those of CudaOmma.EveryKernelIsRight: for NVFP4 by NVFP4, not for BF16 by NVFP4.
TEST(GemmPlanSm120, EveryKernelIsPlannedByName) {
  const Architecture& sm120 = architecture_of("sm120_mma_m128n128k64");
  const Architecture* const named[] = {&sm120};
  EXPECT_THROW(plan_kernels({.n = 4096, .k = 7168, .m = 100}, kRtx5090, false, named),
               UnsupportedError);
  EXPECT_THROW(find_architecture(kH200, named), UnsupportedError);
  int planned = 0;
  for (const KernelConfig& t : kernel_configs(sm120.kernels)) {
    EXPECT_NE(sm120.why_impossible({.k = 64}, t), "");
    if (!sm120.why_impossible({.k = 64, .quantized_x = true}, t).empty()) continue;
    ++planned;
    for (const auto& [n, k] : {std::pair{72, 64}, {13, 128}, {200, 704}})
      for (const std::int64_t m : {1, 17, 130})
        EXPECT_EQ(plan_kernels(problem(n, k, m), kRtx5090, t, named).parts[0].kernel, t)
            << kernel_name(t, sm120);
  }
  EXPECT_GT(planned, 6);
}

/// Tests follow the list with an architecture of their own, found by its name.
TEST(GemmPlanSm120, ArchitectureOfATestIsFoundByName) {
  Architecture twin = architecture_of("sm120_mma_m128n128k64");
  twin.name = "sm120-twin";
  twin.supports = [](const Capability& gpu) { return gpu.major == 9; };
  set_last_architecture(&twin);
  const auto taken = [](std::string_view name) {
    return plan_kernels(problem(4096, 7168, 100), kH200, false, architectures_named(name))
        .architecture->name;
  };
  EXPECT_EQ(taken("sm120-twin"), "sm120-twin");
  EXPECT_EQ(&architecture_of("sm120-twin_mma_m128n128k64"), &twin);
  EXPECT_EQ(taken(""), "sm90");
  set_last_architecture(nullptr);
  EXPECT_THROW(architectures_named("sm120-twin"), ValueError);
}

TEST(GemmPlanSm120, ChoosesAKernelThatCanDoTheProblem) {
  for (const std::int64_t m : {1, 8, 9, 64, 100, 1000, 100000})
    for (const std::int64_t n : {8, 512, 4096, 28672})
      for (const std::int64_t k : {64, 704, 16384})
        for (const bool invariant : {false, true})
          for (const bool workspace : {false, true})
            for (const std::int64_t groups : {1, 8, 256}) {
              KernelProblem p = problem(n, k, m);
              p.groups = groups;
              p.grouped = groups > 1;
              p.batch_invariant = invariant;
              const KernelPlan plan = plan_kernels(p, kRtx5090, workspace);
              const KernelConfig& t = plan.parts[0].kernel;
              EXPECT_EQ(plan.architecture->why_impossible(plan.problem, t), "");
              EXPECT_TRUE(workspace || plan.workspace_bytes == 0);
              EXPECT_LE(plan.workspace_bytes, 6 << 20);
              EXPECT_TRUE(!invariant || plan.architecture->name == "sm120");
            }
}

/// By the models of both: the plan has the kernel of the one that expects less time.
TEST(GemmPlanSm120, TakesTheFasterArchitectureByModel) {
  const Architecture* const both[] = {&architecture_of("sm120_mma_m128n128k64"),
                                      &architecture_of("sm80_mma_m128n128k64")};
  int taken[2] = {};
  for (const Capability& gpu : {kRtx5090, kGb10})
    for (const std::int64_t k : {64, 512, 7168, 18432})
      for (const std::int64_t n : {128, 512, 4096, 28672})
        for (const std::int64_t m : {1, 8, 16, 32, 64, 256, 4096})
          for (const bool workspace : {false, true}) {
            KernelProblem p = problem(n, k, m);
            p.multiprocessors = gpu.multiprocessors;
            p.stream_k = workspace;
            const bool second = both[1]->time(p, gpu) < both[0]->time(p, gpu);
            ++taken[second];
            const KernelPlan plan = plan_kernels(problem(n, k, m), gpu, workspace);
            EXPECT_EQ(plan.architecture, both[second]) << n << " " << k << " " << m;
            EXPECT_EQ(plan.parts[0].kernel, both[second]->choose(p)[0].kernel);
          }
  EXPECT_GT(taken[0], 5 * taken[1]);
  EXPECT_GT(taken[1], 0);
  // Few outputs of many columns: more blocks share their K in sm80. Many rows: FP4 is eight times
  // as fast.
  EXPECT_EQ(plan_kernels(problem(512, 18432, 1), kRtx5090, true).architecture, both[1]);
  EXPECT_EQ(plan_kernels(problem(512, 18432, 256), kRtx5090, true).architecture, both[0]);
}

/// Otherwise a row could have other bits beside other rows.
TEST(GemmPlanSm120, BatchInvariantTakesOneArchitecture) {
  for (const std::int64_t m : {1, 8, 100, 5000}) {
    KernelProblem p = problem(512, 18432, m);
    p.batch_invariant = true;
    EXPECT_EQ(plan_kernels(p, kRtx5090, true).architecture->name, "sm120");
  }
}

TEST(GemmPlanSm120, EitherArchitectureCanBeForced) {
  for (const std::string_view name : {"sm80", "sm120"})
    for (const std::int64_t m : {1, 256}) {
      const KernelPlan plan =
          plan_kernels(problem(512, 18432, m), kRtx5090, true, architectures_named(name));
      EXPECT_EQ(plan.architecture->name, name);
      const std::string kernel = kernel_name(plan.parts[0].kernel, *plan.architecture);
      const Architecture* const of_kernel[] = {&architecture_of(kernel)};
      EXPECT_EQ(of_kernel[0], plan.architecture);
      EXPECT_EQ(plan_kernels(problem(512, 18432, m), kRtx5090, kernel_config(kernel), of_kernel)
                    .architecture,
                plan.architecture);
    }
  EXPECT_EQ(architectures_named("").size(), architectures().size());
  try {
    architectures_named("sm121");
    FAIL();
  } catch (const ValueError& e) {
    EXPECT_THAT(e.what(), HasSubstr("NVFP4_GEMM_ARCHITECTURE = \"sm121\" names no architecture: "
                                    "sm90, sm100, sm120, sm80"));
  }
}

}  // namespace nvfp4::cuda::gemm_plan_sm120_test
