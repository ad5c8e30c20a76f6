// GEMMs in FP8: descriptions, the number of rows and the workspace, without a GPU.
#include "backends/cuda/gemm/fp8/fp8.h"
#include "backends/cuda/gemm/plan.h"
#include "nvfp4/gemm.h"
#include "ops/check_gemm.h"
#include "testing.h"

namespace nvfp4::cuda::gemm_plan_fp8_test {

using testing::HasSubstr;

constexpr Capability kH100{.major = 9, .minor = 0, .multiprocessors = 132};
constexpr Capability kL40S{.major = 8, .minor = 9, .multiprocessors = 142};
constexpr Capability kRtx5090{.major = 12, .minor = 0, .multiprocessors = 170};

TEST(GemmPlanFp8, IsChosenFromSomeHundredsOfRowsOn) {
  const struct {
    std::int64_t n, k, most;
  } kCases[] = {{57344, 8192, 550}, {8192, 28672, 800}, {28672, 4096, 650}, {4096, 4096, 1300}};
  for (const Capability& gpu : {kH100, kL40S, kRtx5090}) {
    for (const auto& c : kCases) {
      EXPECT_LE(fp8::fewest_rows(c.n, c.k, gpu), c.most) << c.n;
      EXPECT_GT(fp8::fewest_rows(c.n, c.k, gpu), 100) << c.n;
    }
    // A small matrix never has more rows than it costs to quantize them.
    EXPECT_GT(fp8::fewest_rows(16, 4096, gpu), 1 << 20);
    for (std::int64_t n = 512; n < 100'000; n *= 2)
      EXPECT_GE(fp8::fewest_rows(n, 4096, gpu), fp8::fewest_rows(2 * n, 4096, gpu)) << n;
  }
}

/// 256 rows of 4096 x 4096 are 32 tiles for 170 multiprocessors. Each takes 145 us at 75 % of FP8,
/// and the exact kernels 60 us at 65 % of BF16.
TEST(GemmPlanFp8, IsNotChosenWhereMostMultiprocessorsIdle) {
  EXPECT_GT(fp8::fewest_rows(4096, 4096, kRtx5090), 600);
  EXPECT_GT(fp8::fewest_rows(8192, 8192, kRtx5090), 300);
  EXPECT_GT(fp8::fewest_rows(4096, 14336, kRtx5090), 600);
  EXPECT_GT(fp8::fewest_rows(4096, 4096, kL40S), 850);
}

TEST(GemmPlanFp8, WorkspaceHasBothOperandsBehindTheFlags) {
  const struct {
    const Architecture& of;
    Capability gpu;
    std::int64_t library;
    const char* text;
  } kCases[] = {{fp8::kArchitecture, kH100, fp8::kLibraryBytes,
                 "5 rows: fp8_cublaslt_m128n128k128, 1 blocks; E4M3 with a factor for each row, as "
                 "cuBLASLt adds up"},
                {fp8::kMmaArchitecture, kL40S, 0,
                 "5 rows: fp8_mma_m128n256k64, 1 blocks; E4M3 with a factor for each row, K in "
                 "order by tensor cores"}};
  for (const auto& c : kCases) {
    const Architecture* const only[] = {&c.of};
    const KernelPlan plan = plan_kernels({.n = 128, .k = 96, .m = 5}, c.gpu, false, only);
    EXPECT_EQ(staging_offset(plan), 4096);
    EXPECT_EQ(call_workspace_bytes(plan), 4096 + 128 * 96 + 2 * 512 + 256 + c.library + 256 + 512);
    EXPECT_THAT(describe(plan), HasSubstr(c.text));
    for (const Architecture* a : architectures()) EXPECT_NE(a, &c.of);
  }
}

TEST(GemmPlanFp8, OtherGpusAreRefusedByName) {
  for (const Capability& gpu : {kH100, kL40S, kRtx5090}) EXPECT_EQ(fp8::why_unusable(gpu), "");
  for (const auto& [major, minor] : {std::pair{8, 0}, {8, 6}, {8, 7}, {10, 0}, {11, 0}})
    EXPECT_THAT(fp8::why_unusable({.major = major, .minor = minor}),
                HasSubstr(fmt::format("8.9, 9.0 or 12.x, not {}.{}", major, minor)));
}

TEST(GemmPlanFp8, WhatFp8CannotComputeIsUnsupported) {
  const GemmDescription good{.m = 4096, .n = 4096, .k = 4096, .arithmetic = Arithmetic::fp8};
  EXPECT_NO_THROW(check_description("plan_gemm", good, Device::cuda()));
  const struct {
    void (*change)(GemmDescription&);
    const char* rule;
  } kCases[] = {
      {[](GemmDescription& d) { d.scheme = Scheme::w4a4; }, "for x in NVFP4 (W4A4)"},
      {[](GemmDescription& d) { d.form = GemmForm::grouped; }, "unless the GEMM is dense"},
      {[](GemmDescription& d) { d.epilogue = Epilogue::swiglu; }, "with SwiGLU"},
      {[](GemmDescription& d) { d.out = DType::f32; }, "for out in FP32"},
      {[](GemmDescription& d) { d.batch_invariant = true; }, "with batch_invariant"},
      {[](GemmDescription& d) { d.n = 4104; }, "unless N is a multiple of 16"},
      {[](GemmDescription& d) { d.kernel = "sm90_wgmma"; }, "for a kernel of the caller"},
  };
  const auto refusal = [](const GemmDescription& d, Device device) -> std::string {
    try {
      check_description("plan_gemm", d, device);
    } catch (const UnsupportedError& e) {
      return e.what();
    }
    return "";
  };
  for (const auto& c : kCases) {
    GemmDescription d = good;
    c.change(d);
    EXPECT_THAT(refusal(d, Device::cuda()),
                HasSubstr(std::string("plan_gemm: arithmetic = fp8, must be exact ") + c.rule));
  }
  EXPECT_THAT(refusal(good, {}), HasSubstr("must be exact on the CPU"));
}

}  // namespace nvfp4::cuda::gemm_plan_fp8_test
