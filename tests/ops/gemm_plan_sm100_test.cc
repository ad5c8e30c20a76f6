// Products by cuBLASLt for compute capability 10.x: plans, without a GPU and without the library.
#include "backends/cuda/gemm/plan.h"
#include "backends/cuda/gemm/sm100/cost_model.h"
#include "backends/cuda/gemm/sm100/kernels.h"
#include "backends/cuda/gemm/sm100/library_reason.h"
#include "testing.h"

namespace nvfp4::cuda::gemm_plan_sm100_test {

using testing::HasSubstr;

constexpr Capability kB200{.major = 10, .minor = 0, .multiprocessors = 148};
constexpr Capability kB300{.major = 10, .minor = 3, .multiprocessors = 148};

KernelProblem problem(std::int64_t n, std::int64_t k, std::int64_t m) {
  return {.n = n, .k = k, .m = m, .quantized_x = true};
}

/// Pretends that the library is present, or not.
class GemmPlanSm100 : public testing::Test {
 protected:
  GemmPlanSm100() : before_(sm100::library_reason()) {
    sm100::library_reason() = [] { return std::string(); };
  }
  ~GemmPlanSm100() override { sm100::library_reason() = before_; }

 private:
  std::string (*before_)();
};

TEST_F(GemmPlanSm100, ManyRowsTakeTheLibrary) {
  for (const Capability& gpu : {kB200, kB300}) {
    EXPECT_EQ(plan_kernels(problem(4096, 7168, 4096), gpu).architecture->name, "sm100");
    EXPECT_EQ(plan_kernels(problem(4096, 7168, 1), gpu).architecture->name, "sm80");
  }
  // By the models of both, for every size.
  const Architecture* const both[] = {&architecture_of("sm100_cublaslt_m128n128k64"),
                                      &architecture_of("sm80_mma_m128n128k64")};
  for (const std::int64_t k : {64, 512, 7168, 18432})
    for (const std::int64_t n : {128, 512, 4096, 28672})
      for (const std::int64_t m : {1, 16, 64, 256, 1024, 4096}) {
        KernelProblem p = problem(n, k, m);
        p.multiprocessors = kB200.multiprocessors;
        const bool second = both[1]->time(p, kB200) <= both[0]->time(p, kB200);
        EXPECT_EQ(plan_kernels(p, kB200).architecture, both[second]) << n << " " << k << " " << m;
      }
}

TEST_F(GemmPlanSm100, HasNameWorkspaceAndIsTakenByName) {
  const KernelConfig kernel = kernel_config("sm100_cublaslt_m128n128k64");
  const Architecture& a = architecture_of("sm100_cublaslt_m128n128k64");
  const Architecture* const named[] = {&a};
  const KernelPlan plan = plan_kernels(problem(64, 96, 3), kB200, kernel, named);
  EXPECT_EQ(
      describe(plan),
      "3 rows: sm100_cublaslt_m128n128k64, 1 blocks; as cuBLASLt adds up\nworkspace: 0 bytes");
  // Codes, scales of W and of x in tiles of 128 x 4, sums, the library's own.
  EXPECT_EQ(a.staging_bytes(plan.problem),
            64 * 48 + 2 * 512 * 2 + 256 + 3 * 64 * 4 + sm100::kLibraryBytes);
  EXPECT_EQ(staging_offset(plan), 4096);
  EXPECT_EQ(call_workspace_bytes(plan), 4096 + a.staging_bytes(plan.problem));
  EXPECT_EQ(architectures_named("sm100")[0], &a);
}

TEST_F(GemmPlanSm100, WhatItDoesNotMultiplyOthersDo) {
  const KernelProblem p = problem(4096, 7168, 4096);
  const Architecture* const named[] = {&architecture_of("sm100_cublaslt_m128n128k64")};
  const struct {
    void (*change)(KernelProblem&);
    const char* reason;
  } kCases[] = {
      {[](KernelProblem& q) { q.quantized_x = false; }, "are for NVFP4 by NVFP4 (W4A4)"},
      {[](KernelProblem& q) { q.grouped = true; }, "are for dense GEMMs"},
      {[](KernelProblem& q) { q.routed = true; }, "are for dense GEMMs"},
      {[](KernelProblem& q) { q.swiglu = true; }, "are for GEMMs without SwiGLU"},
      {[](KernelProblem& q) { q.batch_invariant = true; }, "are not batch-invariant"},
      {[](KernelProblem& q) { q.k = 7184; }, "are for K that is a multiple of 32, not 7184"},
      {[](KernelProblem& q) { q.n = 4104; }, "are for N that is a multiple of 16, not 4104"},
  };
  for (const auto& c : kCases) {
    KernelProblem q = p;
    c.change(q);
    EXPECT_EQ(plan_kernels(q, kB200).architecture->name, "sm80") << c.reason;
    try {
      plan_kernels(q, kB200, false, named);
      FAIL() << c.reason;
    } catch (const UnsupportedError& e) {
      EXPECT_THAT(e.what(), HasSubstr(std::string("the kernels of sm100 ") + c.reason));
    }
  }
}

TEST_F(GemmPlanSm100, MissingLibraryIsReplacedOrNamed) {
  sm100::library_reason() = [] { return std::string("need cuBLASLt, but there is none"); };
  EXPECT_EQ(plan_kernels(problem(4096, 7168, 4096), kB200).architecture->name, "sm80");
  const Architecture* const named[] = {&architecture_of("sm100_cublaslt_m128n128k64")};
  try {
    plan_kernels(problem(4096, 7168, 4096), kB200, kernel_config("sm100_cublaslt_m128n128k64"),
                 named);
    FAIL();
  } catch (const Error& e) {
    EXPECT_THAT(e.what(), HasSubstr("need cuBLASLt, but there is none"));
  }
}

/// The library has FP4 for compute capability 10.x alone.
TEST_F(GemmPlanSm100, OtherGpusAreRefusedByName) {
  const Architecture* const named[] = {&architecture_of("sm100_cublaslt_m128n128k64")};
  for (const int major : {8, 9, 11, 12}) try {
      plan_kernels(problem(4096, 7168, 4096), {.major = major, .multiprocessors = 132}, false,
                   named);
      FAIL() << major;
    } catch (const UnsupportedError& e) {
      EXPECT_THAT(e.what(), HasSubstr("run on sm100 only"));
    }
}

}  // namespace nvfp4::cuda::gemm_plan_sm100_test
