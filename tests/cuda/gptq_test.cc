// Quantization by a Gram matrix on the GPU gives the bits of the CPU. Skipped, with the reason,
// without a GPU.
#include <gtest/gtest.h>

#include "core/device_memory.h"
#include "gptq_cases.h"
#include "nvfp4/runtime.h"
#include "ops/device_gram.h"
#include "ops/factor_gram.h"

namespace nvfp4 {
namespace {

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
TEST_F(CudaGptq, OfManyColumnsAndSweepsGivesTheBitsOfTheCpu) {
  expect_the_bits_of_the_cpu({300, 1040, 4, Fill::laplace}, DType::bf16);
  expect_the_bits_of_the_cpu({130, 400, 40, Fill::student}, DType::f32);
  expect_the_bits_of_the_cpu({257, 512, 3, Fill::subnormal_scales}, DType::f32);
}

}  // namespace
}  // namespace nvfp4
