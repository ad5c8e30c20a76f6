// The better one of two global scales for mse.
#include "nvfp4/choose_global_scale.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "nvfp4/error.h"
#include "plain_cases.h"

namespace nvfp4::choose_global_scale_test {
namespace {

using test::Fill;
using test::make;

double error_with(const Matrix& x, const GlobalScale& global) {
  const QuantizedMatrix q =
      quantize(x.view(), {.quantizer = Quantizer::mse, .global = {&global, 1}});
  return quantization_error(x.view(), q.view()).squared_error;
}

GlobalScale candidate(const std::vector<Matrix>& group, Quantizer range) {
  float largest = 0;
  for (const Matrix& x : group) largest = std::max(largest, amax(x.view()));
  return GlobalScale::from_amax(largest, range);
}

TEST(ChooseGlobalScale, KeepsTheOneThatLosesLessOverAllOfAGroup) {
  int narrow = 0, wide = 0;
  for (std::uint64_t seed = 0; seed < 30; ++seed) {
    std::vector<Matrix> group;
    for (std::uint64_t i = 0; i < 1 + seed % 3; ++i)
      group.push_back(
          make(Fill::gaussian, 5, 64, 100 * seed + i, seed % 2 ? DType::bf16 : DType::f32));
    double errors[2] = {};
    const GlobalScale candidates[2] = {candidate(group, Quantizer::mse),
                                       candidate(group, Quantizer::max)};
    std::vector<MatrixView> views;
    for (const Matrix& x : group) {
      views.push_back(x.view());
      for (int i = 0; i < 2; ++i) errors[i] += error_with(x, candidates[i]);
    }
    const int best = errors[1] < errors[0] ? 1 : 0;
    ++(best == 0 ? narrow : wide);
    for (const std::string& backend : test::available_backends()) {
      const GlobalScale chosen =
          choose_global_scale(views, {.quantizer = Quantizer::mse, .backend = backend});
      EXPECT_EQ(chosen.divisor, candidates[best].divisor) << backend << " seed " << seed;
      EXPECT_EQ(chosen.multiplier, candidates[best].multiplier) << backend << " seed " << seed;
    }
  }
  EXPECT_GT(narrow, 3);
  EXPECT_GT(wide, 3);
}

TEST(ChooseGlobalScale, OfZerosIsOneAndNothingElseIsTaken) {
  const Matrix zeros = make(Fill::zero, 2, 32, 1);
  const MatrixView view = zeros.view();
  EXPECT_EQ(choose_global_scale({&view, 1}).multiplier, 1.0f);
  EXPECT_EQ(choose_global_scale({}).multiplier, 1.0f);
  const GlobalScale one;
  const std::vector<float> weights(32, 1.0f);
  for (const QuantizeOptions& o :
       {QuantizeOptions{.quantizer = Quantizer::max},
        QuantizeOptions{.quantizer = Quantizer::mse, .scope = GlobalScope::vector},
        QuantizeOptions{.quantizer = Quantizer::mse, .global = {&one, 1}},
        QuantizeOptions{.quantizer = Quantizer::mse, .weights = weights}})
    EXPECT_THROW(choose_global_scale({&view, 1}, o), ValueError);
  const Matrix narrow(DType::f32, 2, 24);
  const MatrixView uneven = narrow.view();
  EXPECT_THROW(choose_global_scale({&uneven, 1}), ShapeError);
}

TEST(CudaChooseGlobalScale, ChoosesAsTheCpuDoes) {
  if (const std::string reason = why_unavailable(Device::cuda()); !reason.empty())
    GTEST_SKIP() << "no GPU to run on: " << reason;
  for (std::uint64_t seed = 0; seed < 30; ++seed) {
    const Matrix a = make(Fill::gaussian, 5, 64, 2 * seed), b = make(Fill::laplace, 70, 64, seed);
    const MatrixView here[] = {a.view(), b.view()};
    const Matrix a_there = to_device(a.view(), Device::cuda());
    const Matrix b_there = to_device(b.view(), Device::cuda());
    const MatrixView there[] = {a_there.view(), b_there.view()};
    EXPECT_EQ(choose_global_scale(there).divisor, choose_global_scale(here).divisor) << seed;
  }
}

}  // namespace
}  // namespace nvfp4::choose_global_scale_test
