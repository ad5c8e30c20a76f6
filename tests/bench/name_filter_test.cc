// Which rows nvfp4_cuda_bench and nvfp4_cuda_gptq_bench measure. No GPU is needed.
#include "../../bench/cuda/name_filter.h"

#include <gtest/gtest.h>

namespace nvfp4::bench::name_filter_test {
namespace {

TEST(BenchNames, WithoutAWordEveryRowIsMeasured) {
  NameFilter filter;
  EXPECT_TRUE(filter.wanted("quantize given"));
  EXPECT_NO_THROW(filter.require_found());
}

TEST(BenchNames, AWordSelectsTheRowsThatContainIt) {
  NameFilter filter;
  filter.add("given");
  filter.add("norm");
  EXPECT_TRUE(filter.wanted("quantize given"));
  EXPECT_FALSE(filter.wanted("swiglu"));
  EXPECT_TRUE(filter.wanted("rms_norm"));
  EXPECT_NO_THROW(filter.require_found());
}

TEST(BenchNames, AWordOfNoRowIsAnError) {
  NameFilter filter;
  filter.add("given");
  filter.add("rmsnorm");
  EXPECT_TRUE(filter.wanted("quantize given"));
  EXPECT_FALSE(filter.wanted("rms_norm"));
  EXPECT_THROW(filter.require_found(), ValueError);
}

TEST(BenchNames, AnOptionThatIsNotKnownIsAnError) {
  NameFilter filter;
  EXPECT_THROW(filter.add("--rows"), ValueError);
  EXPECT_THROW(filter.add(""), ValueError);
}

}  // namespace
}  // namespace nvfp4::bench::name_filter_test
