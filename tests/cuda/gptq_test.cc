// Quantization by a Gram matrix on the GPU gives the bits of the CPU. Skipped, with the reason,
// without a GPU.
#include "backends/device_backend.h"
#include "core/device_memory.h"
#include "gptq_cases.h"
#include "ops/device_gram.h"
#include "ops/factor_gram.h"
#include "testing.h"

namespace nvfp4::cuda_gptq_test {

using test::Fill;

class CudaGptq : public testing::Test {
 protected:
  void SetUp() override {
    if (const std::string reason = why_unavailable(Device::cuda()); !reason.empty())
      GTEST_SKIP() << "no GPU to run on: " << reason;
  }

  /// The weight in every type; each is a weight of its own.
  static void expect_the_bits_of_the_cpu(const test::GptqCase& c, DType dtype) {
    SCOPED_TRACE(testing::Message() << c.rows << " x " << c.depth << " " << dtype_name(dtype));
    const Device gpu = Device::cuda();
    const test::GptqLayer layer(c.depth, 300);
    const GramFactor factor = factor_gram(layer.depth, layer.triangle, 0.05);
    const Matrix w = test::make(c.fill, c.rows, c.depth, 7, dtype);
    Matrix floats(DType::f32, c.rows, c.depth);
    for (std::int64_t i = 0; i < w.view().size(); ++i)
      floats.data<float>()[i] = w.view().at(i / c.depth, i % c.depth);
    const test::GptqResult wanted = test::run_gptq(factor, floats.view(), c.sweeps, "");

    const DeviceBackend& backend = device_backend(gpu);
    const DeviceGram gram(factor, gpu, {});
    const Matrix x = to_device(w.view(), gpu);
    const QuantizedMatrix mse = to_device(wanted.mse.view(), gpu);
    QuantizedMatrix best = to_device(wanted.weighted.view(), gpu);
    const Buffer chosen(c.rows, gpu), errors(c.rows * kGptqCandidates * 8, gpu),
        workspace(backend.gptq_workspace(c.rows, c.depth), gpu);
    backend.gptq({.gram = gram.view(),
                  .x = x.view(),
                  .divisor = GlobalScale::from_amax(amax(w.view()), Quantizer::mse).divisor,
                  .sweeps = c.sweeps,
                  .mse_codes = mse.codes(),
                  .mse_scales = mse.scales(),
                  .codes = best.span().codes,
                  .scales = best.span().scales,
                  .chosen = static_cast<std::uint8_t*>(chosen.data()),
                  .errors = static_cast<double*>(errors.data()),
                  .workspace = workspace.data(),
                  .stream = {}});
    std::vector<std::uint8_t> chosen_here(wanted.chosen.size());
    std::vector<double> errors_here(wanted.errors.size());
    const auto fetch = [&](void* to, const Buffer& from, std::int64_t bytes) {
      device_copy({}, to, bytes, gpu, from.data(), bytes, bytes, 1, {});
    };
    fetch(chosen_here.data(), chosen, c.rows);
    fetch(errors_here.data(), errors, c.rows * kGptqCandidates * 8);
    synchronize(gpu);
    EXPECT_TRUE(to_device(best.view(), {}) == wanted.best);
    EXPECT_EQ(chosen_here, wanted.chosen);
    EXPECT_EQ(errors_here, wanted.errors);
  }
};

TEST_F(CudaGptq, GivesTheBitsOfTheCpu) {
  for (const test::GptqCase& c : test::kGptqCases)
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
      expect_the_bits_of_the_cpu(c, dtype);
}

/// More columns than a product takes at a time, sweeps until nothing changes.
TEST_F(CudaGptq, ManyColumnsAndSweepsHaveTheCpusBits) {
  expect_the_bits_of_the_cpu({300, 1040, 4, Fill::laplace}, DType::bf16);
  expect_the_bits_of_the_cpu({130, 400, 40, Fill::student}, DType::f32);
  expect_the_bits_of_the_cpu({257, 512, 3, Fill::subnormal_scales}, DType::f32);
}

/// NVIDIA's library, where it is installed: with Eigen's factors but for rounding.
class CudaFactors : public CudaGptq {
 protected:
  void SetUp() override {
    CudaGptq::SetUp();
    if (IsSkipped()) return;
    solver_ = device_backend(Device::cuda()).solver();
    const std::string reason = solver_->why_unusable();
    if (!reason.empty()) GTEST_SKIP() << reason;
    std::vector<double> one = {4};
    EXPECT_TRUE(solver_->invert_lower(one.data(), 1, Device::cuda()));
    EXPECT_DOUBLE_EQ(one[0], 0.5);
    RecordProperty("library", solver_->name());
  }
  InvertLower library() const {
    return
        [this](double* h, std::int64_t n) { return solver_->invert_lower(h, n, Device::cuda()); };
  }
  const DeviceSolver* solver_ = nullptr;
};

TEST_F(CudaFactors, AreEigensButForRounding) {
  for (const std::int64_t depth : {16, 272, 1040, 2048}) {
    const test::GptqLayer layer(depth, 200);
    const GramFactor wanted = factor_gram(depth, layer.triangle, 0.05);
    const GramFactor got = factor_gram(depth, layer.triangle, 0.05, "", library());
    EXPECT_EQ(got.by, GramFactor::By::library);
    EXPECT_EQ(wanted.by, GramFactor::By::eigen);
    EXPECT_EQ(got.damping, wanted.damping);
    EXPECT_EQ(got.order, wanted.order);
    EXPECT_EQ(got.gram, wanted.gram);
    EXPECT_EQ(got.block_upper, wanted.block_upper) << "blocks are Eigen's";
    for (std::size_t i = 0; i < wanted.upper.size(); ++i) {
      const auto row = static_cast<std::int64_t>(i) / depth;
      const float diagonal = wanted.upper[static_cast<std::size_t>(row * (depth + 1))];
      ASSERT_NEAR(got.upper[i], wanted.upper[i], 1e-6f * diagonal) << depth << ": " << i;
    }
  }
}

TEST_F(CudaFactors, IndefiniteMatricesAreDampedAsByEigen) {
  std::vector<double> h = {1, 0, 0, 4, 1, 0, 0, 0, 1};  // by rows; the lower triangle counts
  const std::vector<double> before = h;
  EXPECT_FALSE(solver_->invert_lower(h.data(), 3, Device::cuda()));
  EXPECT_EQ(h, before);
  std::vector<double> triangle(16 * 17 / 2, 1.0);
  triangle[1] = 1.4;  // takes .5 of the diagonal, more than .05
  const GramFactor wanted = factor_gram(16, triangle, 0.05);
  const GramFactor got = factor_gram(16, triangle, 0.05, "", library());
  EXPECT_FLOAT_EQ(wanted.damping, 0.5f);
  EXPECT_EQ(got.damping, wanted.damping);
  triangle[1] = 100;
  EXPECT_THROW(factor_gram(16, triangle, 0.05, "", library()), ValueError);
}

TEST_F(CudaFactors, LeaveTheOutputErrorOfEigens) {
  const test::GptqLayer layer(1040, 900);
  const Matrix w = test::make(Fill::gaussian, 64, layer.depth, 3);
  const auto error = [&](const InvertLower& by) {
    const GramFactor factor = factor_gram(layer.depth, layer.triangle, 0.05, "", by);
    const test::GptqResult result = test::run_gptq(factor, w.view(), 4, "");
    double sum = 0;
    for (std::size_t r = 0; r < result.chosen.size(); ++r)
      sum += result.errors[r * kGptqCandidates + result.chosen[r]];
    return sum;
  };
  const double eigen = error({});
  EXPECT_NEAR(error(library()), eigen, 1e-3 * eigen);
}

}  // namespace nvfp4::cuda_gptq_test
