// Plans of products, by name. No GPU is needed.
#include "backends/cuda/gemm/plan.h"
#include "backends/cuda/gemm/sm90/cost_model.h"
#include "testing.h"

namespace nvfp4::cuda::gemm_plan_test {

using ::testing::HasSubstr;

constexpr Capability kH200{.major = 9, .minor = 0, .multiprocessors = 132};

TEST(GemmPlan, EveryKernelIsFoundByItsName) {
  std::set<std::string> names;
  for (KernelConfig kernel : kernel_configs(kSm90Kernels))
    for (const int dependents : {0, 7})
      for (const int prefetch : {kAllStages, 0, 2})
        for (const int stream_k : {0, 5}) {
          kernel.launch_dependents_step = dependents;
          kernel.prefetch_stages = prefetch;
          kernel.stream_k_steps = stream_k;
          const std::string name = kernel_name(kernel);
          EXPECT_TRUE(names.insert(name).second) << name;
          EXPECT_EQ(kernel_config(name), kernel) << name;
        }
  EXPECT_EQ(kernel_name({64, 128, 2}), "sm90_wgmma_m64n128k256_splitk2");
  EXPECT_EQ(kernel_name({64, 128, 1, 4, 2}), "sm90_wgmma_m64n128k128_dependents4_prefetch2");
  EXPECT_EQ(kernel_name({8, 32, 1}), "sm90_mma_m8n32k1024");
  EXPECT_EQ(kernel_name({1, 224, 1}), "sm90_routed_m1n224k128");
  EXPECT_EQ(kernel_name({16, 64, 2, 6, 5, 5}),
            "sm90_wgmma_m16n64k256_splitk2_dependents6_prefetch5_streamk5");
}

TEST(GemmPlan, ANameThatIsNoKernelsIsRefused) {
  for (const char* name : {"", "sm90", "sm90_wgmma", "sm90_wgmma_m64n128", "sm90_wgmma_m64n128k64",
                           "sm80_mma_m8n32k1024", "sm90_mma_m64n128k128",
                           "sm90_wgmma_m64n128k256_splitk3", "sm90_wgmma_m64n128k256_splitk02",
                           "sm90_wgmma_m64n128k256_splitk2 ", "sm90_wgmma_m64n128k256_splitk1",
                           "sm90_wgmma_m64n128k256_streamk5_splitk2", "sm90_wgmma_m65n128k256",
                           "sm90_wgmma_m99999999999n128k256", "sm90_wgmma_m64n128k256_splitk-2"})
    EXPECT_THROW(kernel_config(name), ValueError) << name;
}

TEST(GemmPlan, SaysItsKernelsGridSumsAndWorkspace) {
  const KernelProblem deep{.n = 7168, .k = 18432, .m = 16};
  const KernelPlan plan = plan_kernels(deep, kH200, true);
  EXPECT_GT(plan.workspace_bytes, kStreamKFlagBytes);
  EXPECT_LE(plan.workspace_bytes, kStreamKFlagBytes + kStreamKSumBytes);
  const std::string text = describe(plan);
  EXPECT_THAT(text, HasSubstr("16 rows: sm90_wgmma_m16n64k256_splitk2"));
  EXPECT_THAT(text, HasSubstr("_streamk4, "));
  EXPECT_THAT(text, HasSubstr("K in 4 parts (interleaved within a block), added in order"));
  EXPECT_THAT(text, HasSubstr("the last 4 of 36 stages apart, added last"));
  EXPECT_THAT(text, HasSubstr(fmt::format("workspace: {} bytes", plan.workspace_bytes)));
  EXPECT_EQ(plan_kernels(deep, kH200).workspace_bytes, 0);
  // Rows that would begin another round of tiles are a second product.
  const KernelPlan two = plan_kernels({.n = 640, .k = 2880, .m = 5000}, kH200);
  ASSERT_GT(two.parts[1].rows, 0);
  EXPECT_THAT(describe(two), HasSubstr(fmt::format("{} rows: ", two.parts[0].rows)));
  EXPECT_THAT(describe(two), HasSubstr(fmt::format("\n{} rows: ", two.parts[1].rows)));
  EXPECT_THAT(
      describe(plan_kernels({.n = 512, .k = 512, .m = 300, .batch_invariant = true}, kH200)),
      HasSubstr("K in order\n"));
}

TEST(GemmPlan, TakesTheKernelOfTheCaller) {
  const KernelProblem p{.n = 4096, .k = 7168, .m = 100};
  const KernelPlan plan = plan_kernels(p, kH200, kernel_config("sm90_wgmma_m64n128k256"));
  EXPECT_EQ(plan.parts[0].rows, 100);
  EXPECT_EQ(plan.parts[1].rows, 0);
  EXPECT_EQ(plan.parts[0].kernel, (KernelConfig{64, 128, 1}));
}

std::string refusal(const KernelProblem& problem, const KernelConfig& kernel) {
  try {
    plan_kernels(problem, kH200, kernel);
    return "";
  } catch (const ValueError& e) {
    return e.what();
  }
}

TEST(GemmPlan, UnsuitableKernelIsRefusedWithTheRule) {
  const KernelProblem p{.n = 4096, .k = 7168, .m = 100};
  const auto with = [&](auto change) {
    KernelProblem other = p;
    change(other);
    return other;
  };
  EXPECT_EQ(refusal(p, {64, 128, 1}), "");
  EXPECT_THAT(refusal(p, {24, 128, 1}), HasSubstr("does not exist on sm90"));
  EXPECT_THAT(refusal(p, {64, 128, 1, -1}), HasSubstr("_dependents = -1 must not be negative"));
  EXPECT_THAT(refusal(p, {1, 128, 1}), HasSubstr("is for routed GEMMs only"));
  EXPECT_THAT(refusal(with([](auto& q) { q.k = 80; }), {2, 32, 1}),
              HasSubstr("is for K that is a multiple of 64, not 80"));
  EXPECT_THAT(refusal(with([](auto& q) { q.swiglu = true; }), {8, 16, 1}),
              HasSubstr("is not for SwiGLU"));
  EXPECT_THAT(refusal(with([](auto& q) { q.batch_invariant = true; }), {64, 128, 2}),
              HasSubstr("is not batch-invariant"));
  EXPECT_THAT(refusal(with([](auto& q) { q.routed = true; }), {64, 128, 1}),
              HasSubstr("is not for routed GEMMs"));
  EXPECT_THAT(refusal(p, {16, 64, 2, 0, kAllStages, 40}), HasSubstr("stream-K needs whole stages"));
}

TEST(GemmPlan, AGpuWithoutKernelsIsRefusedByName) {
  try {
    find_architecture({.major = 7, .minor = 5, .multiprocessors = 40});
    FAIL();
  } catch (const UnsupportedError& e) {
    EXPECT_THAT(e.what(), HasSubstr("sm_75"));
    EXPECT_THAT(e.what(), HasSubstr("sm90, sm100, sm120, sm80 only"));
  }
}

/// All that an architecture has to say of itself; its folder adds kernels and a launcher.
namespace sm70 {
constexpr Kernel kKernels[] = {{MainloopKind::small_m, 8, 32, 1 | 2},
                               {MainloopKind::wgmma, 64, 64, 1}};
int launches = 0;

const Architecture kArchitecture{
    .name = "sm70",
    .supports = [](const Capability& gpu) { return gpu.major == 7; },
    .kernels = kKernels,
    .choose =
        [](const KernelProblem& p) {
          const KernelConfig kernel = p.m <= 8 ? KernelConfig{8, 32} : KernelConfig{64, 64};
          return std::array<PlanPart, 2>{{{p.m, kernel}, {}}};
        },
    .why_impossible = [](const KernelProblem& p,
                         const KernelConfig&) { return std::string(p.routed ? "is dense" : ""); },
    .stage_k = [](const KernelConfig&) { return 32; },
    .grid = [](const KernelProblem& p, const KernelConfig& c) { return (p.n + c.n - 1) / c.n; },
    .workspace_bytes = [](const KernelProblem&,
                          const KernelConfig& c) { return std::int64_t{c.split_k > 1 ? 1 : 0}; },
    .summation = [](const KernelProblem&,
                    const KernelConfig&) { return std::string("K in order"); },
    .launch = [](const KernelPlan&, const FragmentGemmJob&, std::span<std::byte>) { ++launches; },
};
}  // namespace sm70

/// Adding an architecture takes a record such as the one above, and a line in the list.
TEST(GemmPlan, AnotherArchitectureIsARecordAndALine) {
  std::vector<const Architecture*> all(architectures().begin(), architectures().end());
  all.push_back(&sm70::kArchitecture);
  const Capability v100{.major = 7, .minor = 0, .multiprocessors = 80};
  const KernelPlan plan = plan_kernels({.n = 100, .k = 64, .m = 3}, v100, false, all);
  EXPECT_EQ(plan.architecture, &sm70::kArchitecture);
  EXPECT_EQ(describe(plan), "3 rows: sm70_mma_m8n32k32, 4 blocks; K in order\nworkspace: 0 bytes");
  EXPECT_EQ(kernel_config("sm70_mma_m8n32k32_splitk2", all), (KernelConfig{8, 32, 2}));
  EXPECT_EQ(
      plan_kernels({.n = 100, .k = 64, .m = 3}, v100, KernelConfig{8, 32, 2}, all).workspace_bytes,
      1);
  EXPECT_THROW(
      plan_kernels({.n = 100, .k = 64, .m = 1, .routed = true}, v100, KernelConfig{8, 32}, all),
      ValueError);
  EXPECT_EQ(plan_kernels({.n = 4096, .k = 7168, .m = 3}, kH200, false, all).architecture->name,
            "sm90");
  plan.architecture->launch(plan, {}, {});
  EXPECT_EQ(sm70::launches, 1);
}

}  // namespace nvfp4::cuda::gemm_plan_test
