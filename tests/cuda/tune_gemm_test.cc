// Tuning on a GPU: every form of a product can be measured, and plans take what was kept. Skipped
// without a GPU that has products.
#include <stdlib.h>

#include "nvfp4/gemm.h"
#include "nvfp4/layers.h"
#include "testing.h"

namespace nvfp4::tune_gemm_test {

const Device kGpu = Device::cuda();

class CudaTune : public testing::Test {
 protected:
  void SetUp() override {
    if (const std::string reason = why_unavailable(kGpu); !reason.empty())
      GTEST_SKIP() << "no GPU to run on: " << reason;
    try {
      plan_gemm({.m = 1, .n = 64, .k = 64}, kGpu);
    } catch (const UnsupportedError& no) {
      GTEST_SKIP() << no.what();
    }
    ::setenv("NVFP4_TUNE_CACHE", file_.c_str(), 1);
  }
  void TearDown() override { ::unsetenv("NVFP4_TUNE_CACHE"); }

  /// The kernel that a new thread, which keeps no plans, finds.
  static std::string kernel_of(const GemmDescription& d, std::string& text) {
    std::string kernel;
    std::jthread([&] {
      const GemmPlan plan = plan_gemm(d, kGpu);
      kernel = plan.kernel();
      text = to_string(plan);
    }).join();
    return kernel;
  }

  TempDir dir_;
  std::filesystem::path file_ = dir_ / "gemm.txt";
};

std::vector<GemmDescription> descriptions() {
  std::vector<GemmDescription> all;
  for (const std::int64_t m : {1, 16, 100, 1500})
    all.push_back({.m = m, .n = 320, .k = 1024, .max_workspace_bytes = m == 16 ? 8 << 20 : 0});
  all.push_back({.m = 40, .n = 72, .k = 80});
  all.push_back({.m = 8, .n = 256, .k = 512, .x = DType::f16, .out = DType::f32});
  all.push_back({.m = 8, .n = 256, .k = 512, .scheme = Scheme::w4a4});
  all.push_back({.m = 8, .n = 256, .k = 512, .batch_invariant = true});
  all.push_back({.m = 60, .n = 256, .k = 512, .groups = 16, .form = GemmForm::grouped});
  all.push_back({.m = 8, .n = 256, .k = 512, .groups = 16, .form = GemmForm::routed, .top_k = 4});
  all.push_back({.m = 8,
                 .n = 256,
                 .k = 512,
                 .groups = 16,
                 .form = GemmForm::routed,
                 .top_k = 4,
                 .shared_x = true,
                 .epilogue = Epilogue::swiglu});
  for (const bool shared : {false, true})
    all.push_back({.m = 5,
                   .n = 256,
                   .k = 512,
                   .groups = 4,
                   .form = GemmForm::every_group,
                   .shared_x = shared});
  for (const Epilogue epilogue : {Epilogue::swiglu, Epilogue::swiglu_quantize}) {
    all.push_back({.m = 24, .n = 256, .k = 512, .epilogue = epilogue});
    all.push_back({.m = 60,
                   .n = 256,
                   .k = 512,
                   .groups = 16,
                   .form = GemmForm::grouped,
                   .epilogue = epilogue});
  }
  return all;
}

TEST_F(CudaTune, MeasuresEveryFormAndPlansTakeTheFastest) {
  for (GemmDescription d : descriptions()) {
    const GemmPlan plain = plan_gemm(d, kGpu);
    SCOPED_TRACE(to_string(plain));
    const GemmTuning tuning = tune_gemm(d, kGpu);
    EXPECT_EQ(tuning.note, "");
    EXPECT_EQ(tuning.file, file_.string());
    ASSERT_GE(tuning.kernels.size(), 1u);
    EXPECT_EQ(std::ranges::count(tuning.kernels, true, &TimedKernel::chosen), 1);
    for (const TimedKernel& k : tuning.kernels)
      EXPECT_TRUE(k.microseconds > 0 && k.microseconds < 1e6) << k.kernel;
    d.autotune = true;
    std::string text;
    const std::string kernel = kernel_of(d, text);
    EXPECT_NE(text.find("tuned"), text.npos) << text;
    if (tuning.kernels[0].kernel.find(' ') == std::string::npos) {
      EXPECT_EQ(kernel, tuning.kernels[0].kernel);
    }
    d.autotune = false;
    EXPECT_EQ(to_string(plan_gemm(d, kGpu)), to_string(plain)) << "without it nothing changes";
  }
}

TEST_F(CudaTune, FirstPlanMeasuresAndIsRight) {
  const std::int64_t m = 16, n = 192, k = 1024;
  Matrix x(DType::bf16, m, k), w(DType::bf16, n, k);
  for (auto [matrix, step] : {std::pair(&x, 37), {&w, 29}})
    for (std::int64_t i = 0; i < matrix->rows() * k; ++i)
      matrix->data<std::uint16_t>()[i] =
          BF16::from_float(static_cast<float>(i * step % 31 - 15) / 16).bits;
  const QuantizedMatrix q = quantize(w.view());
  const auto product = [&](const Matrix& left, Device device, bool autotune) {
    const PackedWeights packed = pack_weights(q.view(), {.device = device});
    const GemmPlan plan = plan_gemm(packed, {.m = m, .out = DType::f32, .autotune = autotune});
    Matrix out(DType::f32, m, n, device);
    Buffer space(std::max<std::int64_t>(plan.workspace_bytes(), 16), device);
    gemm(plan, {.x = left.view(), .weights = packed, .out = out.span()},
         {static_cast<std::byte*>(space.data()), static_cast<std::size_t>(plan.workspace_bytes())});
    synchronize(device);
    return to_device(out.view(), {});
  };
  EXPECT_FALSE(std::filesystem::exists(file_));
  const Matrix expected = product(x, {}, false);
  const Matrix got = product(to_device(x.view(), kGpu), kGpu, true);
  EXPECT_TRUE(std::filesystem::exists(file_));
  for (std::int64_t i = 0; i < m * n; ++i)
    ASSERT_NEAR(got.data<float>()[i], expected.data<float>()[i], 1e-2) << i;
}

TEST_F(CudaTune, LayersMeasureWhenTheyAreToldTo) {
  Matrix x(DType::bf16, 5, 512), w(DType::bf16, 192, 512);
  for (Matrix* matrix : {&x, &w})
    for (std::int64_t i = 0; i < matrix->rows() * 512; ++i)
      matrix->data<std::uint16_t>()[i] =
          BF16::from_float(static_cast<float>(i * 23 % 29 - 14) / 16).bits;
  const QuantizedMatrix q = quantize(w.view());
  const Matrix there = to_device(x.view(), kGpu);
  const Matrix expected = Linear(q.view(), {.scheme = Scheme::w4a16}).forward(x.view());
  for (const bool autotune : {false, true}) {
    const Linear linear(q.view(), {.scheme = Scheme::w4a16, .autotune = autotune, .device = kGpu});
    EXPECT_FALSE(std::filesystem::exists(file_)) << "before the first call";
    const Matrix got = to_device(linear.forward(there.view()).view(), {});
    EXPECT_EQ(std::filesystem::exists(file_), autotune);
    for (std::int64_t i = 0; i < 5 * 192; ++i)
      ASSERT_NEAR(BF16{got.data<std::uint16_t>()[i]}.to_float(),
                  BF16{expected.data<std::uint16_t>()[i]}.to_float(), 0.5)
          << i;
  }
}

TEST_F(CudaTune, FileOfAnotherKindIsReportedAndStays) {
  write_text(file_, "[]");
  const GemmDescription d{.m = 3, .n = 64, .k = 256};
  const GemmTuning tuning = tune_gemm(d, kGpu);
  EXPECT_EQ(tuning.file, "");
  EXPECT_NE(tuning.note.find(file_.string()), std::string::npos) << tuning.note;
  EXPECT_EQ(read_text(file_), "[]");
}

}  // namespace nvfp4::tune_gemm_test
