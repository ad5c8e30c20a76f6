// The kernels of every GPU from sm_80 on: plans, without a GPU.
#include "backends/cuda/gemm/plan.h"
#include "backends/cuda/gemm/sm80/cost_model.h"
#include "backends/cuda/gpu_targets.h"
#include "testing.h"

namespace nvfp4::cuda::gemm_plan_sm80_test {

using testing::HasSubstr;

constexpr Capability kA100{.major = 8, .minor = 0, .multiprocessors = 108};
constexpr Capability kRtx4090{.major = 8, .minor = 9, .multiprocessors = 128};
constexpr Capability kH100{.major = 9, .minor = 0, .multiprocessors = 132};
constexpr Capability kB200{.major = 10, .minor = 0, .multiprocessors = 148};
constexpr Capability kRtx5090{.major = 12, .minor = 0, .multiprocessors = 170};

TEST(GemmPlanSm80, EveryGpuButHopperHasItsKernels) {
  for (const Capability& gpu : {kA100, kRtx4090, kB200, kRtx5090})
    EXPECT_EQ(find_architecture({}, gpu, architectures()).name, "sm80") << gpu.major;
  EXPECT_EQ(find_architecture(kH100).name, "sm90");
}

TEST(GemmPlanSm80, EveryKernelHasANameThatFindsIt) {
  const Architecture& a = find_architecture(kA100);
  for (const KernelConfig& t : kernel_configs(a.kernels)) {
    const std::string name = kernel_name(t, a);
    EXPECT_EQ(kernel_config(name), t) << name;
    EXPECT_EQ(&architecture_of(name), &a) << name;
  }
  EXPECT_THROW(architecture_of("sm80_mma_m8n8k64"), ValueError);
}

/// One that Hopper has under the same tile is another kernel.
TEST(GemmPlanSm80, AKernelOfItsNameRunsOnHopper) {
  const Architecture* const named[] = {&architecture_of("sm80_mma_m128n128k64")};
  const KernelPlan plan = plan_kernels({.n = 4096, .k = 7168, .m = 64}, kH100,
                                       kernel_config("sm80_mma_m128n128k64"), named);
  EXPECT_EQ(plan.architecture->name, "sm80");
  EXPECT_THAT(describe(plan), HasSubstr("64 rows: sm80_mma_m128n128k64, 32 blocks; K in order"));
}

TEST(GemmPlanSm80, ChoosesAKernelThatCanDoTheProblem) {
  for (const std::int64_t m : {1, 2, 8, 9, 64, 100, 1000, 100000})
    for (const std::int64_t n : {8, 512, 4096, 28672})
      for (const std::int64_t k : {16, 720, 7168})
        for (const bool swiglu : {false, true})
          for (const bool invariant : {false, true})
            for (const std::int64_t groups : {1, 8, 256}) {
              const KernelProblem p{.n = n,
                                    .k = k,
                                    .m = m,
                                    .groups = groups,
                                    .grouped = groups > 1,
                                    .multiprocessors = 108,
                                    .batch_invariant = invariant,
                                    .swiglu = swiglu};
              const KernelConfig t = sm80::choose_kernel(p);
              ASSERT_NE(t.m, 0);
              EXPECT_EQ(sm80::why_impossible(p, t), "");
              EXPECT_GE(sm80::block_count(p, t), 1);
            }
  const KernelConfig routed = sm80::choose_kernel(
      {.n = 4096, .k = 7168, .m = 1, .groups = 8, .routed = true, .multiprocessors = 108});
  EXPECT_TRUE(sm80::is_routed(routed));
}

/// SwiGLU then has the bits of the product and the step after it.
TEST(GemmPlanSm80, SwigluTakesKernelsOfPlainSums) {
  const Architecture& sm80 = architecture_of("sm80_mma_m64n256k64");
  int narrow = 0;
  for (const int multiprocessors : {108, 132})
    for (const std::int64_t m : {1, 2, 5, 8, 33, 700})
      for (const std::int64_t n : {96, 224, 512, 1024, 2112, 4096, 28672})
        for (const std::int64_t k : {720, 1040, 7168})
          for (const bool stream_k : {false, true}) {
            KernelProblem p{
                .n = n, .k = k, .m = m, .multiprocessors = multiprocessors, .stream_k = stream_k};
            const KernelConfig alone = sm80::choose_kernel(p);
            p.swiglu = true;
            const KernelConfig fused = sm80::choose_kernel(p);
            EXPECT_EQ(sm80::why_impossible(p, fused), "");
            EXPECT_EQ(sm80.summation(p, fused), sm80.summation(p, alone))
                << m << ": " << n << " x " << k;
            narrow += alone.n < 32 ? 1 : 0;
          }
  EXPECT_GT(narrow, 0) << "no tile that SwiGLU lacks was chosen";
}

TEST(GemmPlanSm80, FewRowsTakeSmallTiles) {
  const auto tile = [](std::int64_t m) {
    return sm80::choose_kernel({.n = 8192, .k = 8192, .m = m, .multiprocessors = 108});
  };
  EXPECT_LE(tile(1).m, 8);
  EXPECT_EQ(tile(8).m, 8);
  EXPECT_GE(tile(4096).m, 128);
}

/// A sum is the same for every number of rows: K in order, whatever the tile.
TEST(GemmPlanSm80, BatchInvariantKernelsDoNotDivideK) {
  for (const std::int64_t m : {1, 16, 64, 4096})
    EXPECT_EQ(
        sm80::kernel_of(
            sm80::choose_kernel(
                {.n = 4096, .k = 7168, .m = m, .multiprocessors = 108, .batch_invariant = true}))
            .warps.k,
        1);
}

/// Blocks that share K take a workspace: counters, and their sums.
TEST(GemmPlanSm80, BlocksShareKOnlyWithAWorkspace) {
  const Architecture* const sm80[] = {&architecture_of("sm80_mma_m64n256k64")};
  const KernelProblem few_tiles{.n = 2048, .k = 16384, .m = 32};
  const KernelPlan without = plan_kernels(few_tiles, kA100, false, sm80);
  EXPECT_EQ(without.parts[0].kernel.split_k, 1);
  EXPECT_EQ(without.workspace_bytes, 0);
  const KernelPlan with = plan_kernels(few_tiles, kA100, true, sm80);
  const KernelConfig t = with.parts[0].kernel;
  EXPECT_GT(t.split_k, 1);
  EXPECT_EQ(with.workspace_bytes, 4096 + ceil_div(std::int64_t{32}, t.m) *
                                             ceil_div(std::int64_t{2048}, t.n) * t.split_k * t.m *
                                             t.n * 4);
  EXPECT_LE(with.workspace_bytes, 6 << 20);
  EXPECT_THAT(describe(with), HasSubstr("blocks, whose sums are added in order"));
  KernelProblem invariant = few_tiles;
  invariant.batch_invariant = true;
  EXPECT_EQ(plan_kernels(invariant, kA100, true, sm80).parts[0].kernel.split_k, 1);
}

TEST(GemmPlanSm80, NamedKernelSharesKWithinItsCounters) {
  const Architecture* const sm80[] = {&architecture_of("sm80_mma_m64n256k64")};
  const KernelConfig split = kernel_config("sm80_mma_m64n128k128_splitk2");
  KernelProblem p{.n = 128 * 1024, .k = 4096, .m = 64};
  EXPECT_GT(plan_kernels(p, kA100, split, sm80).workspace_bytes, 0);
  p.m = 65;
  EXPECT_THROW(plan_kernels(p, kA100, split, sm80), ValueError);
}

TEST(GpuTargets, OldDriverErrorNamesTheNeededOne) {
  EXPECT_EQ(driver_fault(13000, 12080),
            "the driver is for CUDA 12.8, this build of CUDA 13.0 takes driver 580 or newer");
  EXPECT_EQ(driver_fault(12090, 0),
            "no CUDA driver is loaded, this build of CUDA 12.9 takes driver 525 or newer");
}

TEST(GpuTargets, MachineCodeRunsOnItsOwnMajorVersion) {
  constexpr std::string_view kAll = "80,90a,100f,120f";
  for (const auto& [major, minor] :
       {std::pair{8, 0}, {8, 6}, {8, 9}, {9, 0}, {10, 0}, {10, 3}, {12, 0}, {12, 1}})
    EXPECT_TRUE(has_machine_code(kAll, major, minor)) << major << "." << minor;
  EXPECT_FALSE(has_machine_code(kAll, 7, 5));
  EXPECT_FALSE(has_machine_code(kAll, 11, 0));
  EXPECT_FALSE(has_machine_code("86", 8, 0));
  EXPECT_FALSE(has_machine_code("90a", 8, 9));
  EXPECT_FALSE(has_machine_code("100a", 10, 3));
  EXPECT_FALSE(has_machine_code("", 8, 0));
}

}  // namespace nvfp4::cuda::gemm_plan_sm80_test
