// cuda/solver loads cuSOLVER and tells it what to factor: with a library that stands for it, and
// with the one that NVFP4_TEST_CUSOLVER names, if any. No GPU is needed.
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "backends/cuda/solver/cusolver.h"
#include "cusolver/fake.h"
#include "nvfp4/error.h"

namespace nvfp4::cuda::cusolver {
namespace {

using testing::ExitedWithCode;
using testing::HasSubstr;

class CuSolver : public testing::Test {
 protected:
  CuSolver() {
    setenv("NVFP4_CUSOLVER", NVFP4_FAKE_CUSOLVER, 1);
    void* const library = dlopen(NVFP4_FAKE_CUSOLVER, RTLD_NOW);
    fake_ = reinterpret_cast<FakeCuSolver* (*)()>(dlsym(library, "fake_cusolver"))();
    *fake_ = {.handles = fake_->handles};
  }
  FakeCuSolver* fake_;
};

/// Symmetric, positive definite for `shift` above 0; row by row, with a mark above the diagonal.
constexpr double kMark = 12345;
std::vector<double> matrix(std::int64_t n, double shift) {
  std::vector<double> h(static_cast<std::size_t>(n * n), kMark);
  for (std::int64_t i = 0; i < n; ++i)
    for (std::int64_t j = 0; j <= i; ++j)
      h[static_cast<std::size_t>(i * n + j)] =
          std::pow(0.7, static_cast<double>(i - j)) + (i == j ? shift : 0);
  return h;
}

/// On the host, where the stand-in works. The two of its info.
std::vector<int> invert(std::vector<double>& h, std::int64_t n, void* stream = nullptr) {
  std::vector<int> info(2, -1);
  Problem problem{.h = h.data(), .n = n, .stream = stream, .info = info.data()};
  const Workspace sizes = workspace_of(problem);
  std::vector<char> there(sizes.bytes), here(sizes.host_bytes);
  problem.workspace = there.data();
  problem.host_workspace = here.data();
  invert_lower(problem, sizes);
  return info;
}

TEST_F(CuSolver, InvertsTheLowerFactorAndNothingElse) {
  for (const std::int64_t n : {1, 2, 16, 77}) {
    const std::vector<double> before = matrix(n, 0.3);
    std::vector<double> h = before;
    int mark = 0;
    EXPECT_EQ(invert(h, n, &mark), std::vector<int>({0, 0}));
    EXPECT_EQ(fake_->stream, &mark);
    const auto at = [&](std::int64_t i, std::int64_t j) {
      return h[static_cast<std::size_t>(i * n + j)];
    };
    const auto of_h = [&](std::int64_t i, std::int64_t j) {
      return before[static_cast<std::size_t>(std::max(i, j) * n + std::min(i, j))];
    };
    for (std::int64_t i = 0; i < n; ++i)
      for (std::int64_t j = 0; j < n; ++j) {
        if (j > i) {
          EXPECT_EQ(at(i, j), kMark);
          continue;
        }
        double sum = 0;  // L⁻¹ H L⁻ᵀ
        for (std::int64_t k = 0; k <= i; ++k)
          for (std::int64_t l = 0; l <= j; ++l) sum += at(i, k) * of_h(k, l) * at(j, l);
        EXPECT_NEAR(sum, i == j ? 1 : 0, 1e-12) << n << ": " << i << ", " << j;
      }
  }
  EXPECT_EQ(fake_->faults, 0);
  EXPECT_EQ(fake_->factored, 4);
  EXPECT_EQ(fake_->inverted, 4);
  EXPECT_EQ(fake_->handles, 1);
  EXPECT_EQ(name(), "cuSOLVER 12.0.4");
}

TEST_F(CuSolver, SaysWhatIsNotPositiveDefinite) {
  std::vector<double> h = matrix(16, 0);
  h[17] = -1;
  EXPECT_EQ(invert(h, 16)[0], 2);
}

TEST_F(CuSolver, NamesWhatTheLibraryRefuses) {
  fake_->fails_with = 7;
  std::vector<double> h = matrix(16, 0.3);
  try {
    invert(h, 16);
    FAIL();
  } catch (const DeviceError& e) {
    EXPECT_THAT(e.what(), HasSubstr("cuSOLVER 12.0.4: potrf: cusolverStatus_t 7"));
  }
}

TEST(CuSolverVersion, IsRequired) {
  EXPECT_EQ(why_unusable(12004), "");
  EXPECT_EQ(why_unusable(11400), "");
  EXPECT_EQ(why_unusable(11300), "need cuSOLVER of version 11400 or newer, not 11300");
}

/// In processes of their own: a library is loaded once.
TEST(CuSolverDeathTest, WhatCannotBeLoadedSaysWhy) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto reason_with = [](const char* named) {
    setenv("NVFP4_CUSOLVER", named, 1);
    std::fputs(why_unusable().c_str(), stderr);
    std::exit(0);
  };
  EXPECT_EXIT(reason_with("/nowhere/libcusolver.so"), ExitedWithCode(0),
              "NVFP4_CUSOLVER = \"/nowhere/libcusolver.so\" cannot be loaded");
  EXPECT_EXIT(reason_with("libm.so.6"), ExitedWithCode(0),
              "the cuSOLVER that was loaded has no cusolverGetVersion");
}

/// NVIDIA's library: it is loaded; where no GPU is, its handle fails.
TEST(RealCuSolverDeathTest, IsLoadedAndSaysItsVersion) {
  const char* const named = std::getenv("NVFP4_TEST_CUSOLVER");
  if (named == nullptr) GTEST_SKIP() << "NVFP4_TEST_CUSOLVER names no library";
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto run = [&] {
    setenv("NVFP4_CUSOLVER", named, 1);
    std::fprintf(stderr, "reason: \"%s\"\n%s\n", why_unusable().c_str(), name().c_str());
    std::exit(0);
  };
  EXPECT_EXIT(run(), ExitedWithCode(0), "reason: \"\"\ncuSOLVER 1[1-9]\\.");
}

}  // namespace
}  // namespace nvfp4::cuda::cusolver
