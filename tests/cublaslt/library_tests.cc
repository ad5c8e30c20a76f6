// gemm/sm100 loads cuBLASLt and tells it what a product is: with a library that stands for it, and
// with the one that NVFP4_TEST_CUBLASLT names, if any. No GPU is needed.
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <tuple>
#include <vector>

#include "backends/cuda/gemm/sm100/cublaslt.h"
#include "cublaslt/fake.h"
#include "nvfp4/error.h"
#include "nvfp4/format.h"
#include "nvfp4/layout.h"

namespace nvfp4::cuda::cublaslt {
namespace {

using testing::ExitedWithCode;
using testing::HasSubstr;

class CublasLt : public testing::Test {
 protected:
  CublasLt() {
    setenv("NVFP4_CUBLASLT", NVFP4_FAKE_CUBLASLT, 1);
    void* const library = dlopen(NVFP4_FAKE_CUBLASLT, RTLD_NOW);
    fake_ = reinterpret_cast<FakeCublasLt* (*)()>(dlsym(library, "fake_cublaslt"))();
    *fake_ = {.handles = fake_->handles};
  }
  FakeCublasLt* fake_;
};

struct alignas(16) Aligned {
  unsigned char of[16];
};
struct Operand {
  std::vector<Aligned> codes, scales;
  Operand(std::int64_t rows, std::int64_t k, std::mt19937& random)
      : codes(static_cast<std::size_t>(rows * k / 32)),
        scales(static_cast<std::size_t>(Tiled128x4Scales::bytes(rows, k / 16) / 16)) {
    for (Aligned& a : codes)
      for (unsigned char& c : a.of) c = static_cast<unsigned char>(random());
    for (std::int64_t row = 0; row < rows; ++row)
      for (std::int64_t b = 0; b < k / 16; ++b)
        scale(row, b, k) = static_cast<unsigned char>(0x30 + random() % 16);
  }
  unsigned char& scale(std::int64_t row, std::int64_t block, std::int64_t k) {
    return reinterpret_cast<unsigned char*>(
        scales.data())[Tiled128x4Scales::offset(row, block, 0, k / 16)];
  }
  double value(std::int64_t row, std::int64_t i, std::int64_t k) {
    constexpr double kValues[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
    const auto* const bytes = reinterpret_cast<const unsigned char*>(codes.data());
    const int code = bytes[(row * k + i) / 2] >> (i % 2 * 4) & 15;
    const int bits = scale(row, i / 16, k);
    const double s = (8 + bits % 8) * std::ldexp(1.0, bits / 8 - 10);
    return (code & 8 ? -s : s) * kValues[code & 7];
  }
};

Product product_of(Operand& w, Operand& x, std::vector<float>& sums, std::vector<Aligned>& work,
                   std::int64_t n, std::int64_t m, std::int64_t k) {
  return {.n = n,
          .m = m,
          .k = k,
          .w = w.codes.data(),
          .w_scales = w.scales.data(),
          .x = x.codes.data(),
          .x_stride = k,
          .x_scales = x.scales.data(),
          .out = sums.data(),
          .out_stride = n,
          .workspace = work.data(),
          .workspace_bytes = work.size() * 16,
          .stream = &work,
          .device = 0};
}

TEST_F(CublasLt, GetsTheProblemAndIsAskedOnce) {
  std::mt19937 random(1);
  std::vector<std::uint64_t> algorithms;
  for (const auto& [n, m, k] : {std::tuple{48, 5, 96}, {144, 131, 64}, {48, 5, 96}, {16, 1, 160}}) {
    Operand w(n, k, random), x(m, k, random);
    std::vector<float> sums(static_cast<std::size_t>(n * m + 1), -7.0f);
    std::vector<Aligned> work(64);
    const Product p = product_of(w, x, sums, work, n, m, k);
    multiply(p);
    const std::uint64_t chosen = fake_->algorithm;
    multiply(p);
    EXPECT_EQ(fake_->algorithm, chosen);
    algorithms.push_back(chosen - FakeCublasLt::kAlgorithm);
    EXPECT_EQ(fake_->stream, &work);
    for (int i = 0; i < m; ++i)
      for (int j = 0; j < n; ++j) {
        double sum = 0;
        for (int l = 0; l < k; ++l) sum += w.value(j, l, k) * x.value(i, l, k);
        ASSERT_FLOAT_EQ(sums[static_cast<std::size_t>(i * n + j)], static_cast<float>(sum))
            << i << " " << j;
      }
    EXPECT_EQ(sums.back(), -7.0f);
  }
  // The third shape is the first.
  EXPECT_THAT(algorithms, testing::ElementsAre(1, 2, 1, 3));
  EXPECT_EQ(fake_->heuristics, 3);
  EXPECT_EQ(fake_->products, 8);
  EXPECT_EQ(fake_->handles, 1);
  EXPECT_EQ(fake_->alive, 0);
  EXPECT_EQ(fake_->faults, 0);
}

/// Rows of out that have room behind them, rounded to its type, times a factor of the device.
TEST_F(CublasLt, WritesOutItself) {
  constexpr std::int64_t kN = 48, kM = 5, kK = 96, kStride = 56;
  std::mt19937 random(4);
  Operand w(kN, kK, random), x(kM, kK, random);
  std::vector<float> sums(kM * kN);
  std::vector<Aligned> work(1), out(kM * kStride * 2 / 16, Aligned{{0xAA}});
  Product p = product_of(w, x, sums, work, kN, kM, kK);
  multiply(p);
  EXPECT_FALSE(fake_->factors_on_device);
  const float factors[] = {0.37f, 0};
  p.out = out.data();
  p.out_type = kRealBf16;
  p.out_stride = kStride;
  p.factors = factors;
  const std::vector<Aligned> before = out;
  multiply(p);
  const auto at = [](const std::vector<Aligned>& v, std::int64_t i) {
    std::uint16_t bits = 0;
    std::memcpy(&bits, v.data()->of + 2 * i, 2);
    return bits;
  };
  for (std::int64_t i = 0; i < kM; ++i)
    for (std::int64_t j = 0; j < kStride; ++j) {
      const std::int64_t of_sum = i * kN + std::min(j, kN - 1);
      EXPECT_EQ(at(out, i * kStride + j),
                j < kN ? BF16::from_float(0.37f * sums[static_cast<std::size_t>(of_sum)]).bits
                       : at(before, i * kStride + j))
          << i << " " << j;
    }
  EXPECT_TRUE(fake_->factors_on_device);
  EXPECT_EQ(fake_->heuristics, 2) << "another type of out is another question";
  EXPECT_EQ(fake_->faults, 0);
}

/// Rows of FP8 with a factor each: two rows of W, of which the library is told all.
TEST_F(CublasLt, MultipliesRowsOfFp8) {
  constexpr std::int64_t kN = 16, kM = 3, kK = 32;
  alignas(16) unsigned char w[kN * kK] = {}, x[kM * kK] = {};
  alignas(16) float w_factors[kN], x_factors[] = {1, 0.5f, 4};
  alignas(16) std::uint16_t bias[kN], out[kM * kN] = {};
  for (int j = 0; j < kN; ++j) {
    w_factors[j] = std::ldexp(1.0f, j % 4 - 2);
    w[j * kK + j] = 0x38;                                  // 1
    w[j * kK + j + 1] = static_cast<unsigned char>(0xB8);  // -1
    bias[j] = BF16::from_float(static_cast<float>(j)).bits;
  }
  for (int i = 0; i < kM * kK; ++i) x[i] = static_cast<unsigned char>(0x30 + i % 24);
  std::vector<Aligned> work(1);
  Product p{.type = kRealE4m3,
            .n = kN,
            .m = kM,
            .k = kK,
            .w = w,
            .w_scales = w_factors,
            .x = x,
            .x_stride = kK,
            .x_scales = x_factors,
            .out = out,
            .out_type = kRealBf16,
            .out_stride = kN,
            .workspace = work.data(),
            .workspace_bytes = 16};
  for (const bool with_bias : {false, true}) {
    p.bias = with_bias ? bias : nullptr;
    p.fast_accumulation = with_bias;
    multiply(p);
    EXPECT_EQ(fake_->fast, with_bias);
    for (int i = 0; i < kM; ++i)
      for (int j = 0; j < kN; ++j) {
        const float sum = E4M3{x[i * kK + j]}.to_float() - E4M3{x[i * kK + j + 1]}.to_float();
        const float y = sum * x_factors[i] * w_factors[j] + (with_bias ? static_cast<float>(j) : 0);
        EXPECT_EQ(out[i * kN + j], BF16::from_float(y).bits) << i << " " << j;
      }
  }
  EXPECT_EQ(fake_->heuristics, 2) << "a bias is another question";
  p.planned_m = kM;
  p.m = 2;
  fake_->refuses = true;
  EXPECT_TRUE(is_supported(p)) << "by the algorithm of the plan";
  multiply(p);
  p.planned_m = 0;
  p.m = kM;
  p.out_stride = 2 * kN;
  EXPECT_FALSE(is_supported(p));
  try {
    multiply(p);
    FAIL();
  } catch (const UnsupportedError& e) {
    EXPECT_THAT(e.what(), HasSubstr("no GEMM of FP8 [3, 32] by [16, 32] on this GPU; arithmetic = "
                                    "exact takes other kernels"));
  }
}

TEST_F(CublasLt, UnsupportedProblemIsRefusedWithTheVersion) {
  std::mt19937 random(2);
  Operand w(32, 64, random), x(3, 64, random);
  std::vector<float> sums(96);
  std::vector<Aligned> work(1);
  fake_->refuses = true;
  try {
    multiply(product_of(w, x, sums, work, 32, 3, 64));
    FAIL();
  } catch (const UnsupportedError& e) {
    EXPECT_THAT(e.what(),
                HasSubstr("cuBLASLt 130000 has no GEMM of NVFP4 [3, 64] by [32, 64] on this GPU"));
  }
  EXPECT_EQ(fake_->products, 0);
  EXPECT_EQ(fake_->alive, 0);
  // It is asked again, not remembered as refused.
  fake_->refuses = false;
  EXPECT_NO_THROW(multiply(product_of(w, x, sums, work, 32, 3, 64)));
}

TEST_F(CublasLt, AnErrorNamesTheCallAndTheStatus) {
  std::mt19937 random(3);
  Operand w(32, 64, random), x(3, 64, random);
  std::vector<float> sums(96);
  std::vector<Aligned> work(1);
  Product p = product_of(w, x, sums, work, 32, 3, 64);
  p.x_scales = x.scales.data()->of + 1;  // not aligned
  try {
    multiply(p);
    FAIL();
  } catch (const DeviceError& e) {
    EXPECT_THAT(e.what(), HasSubstr("gemm: cuBLASLt: GEMM: CUBLAS_STATUS_INVALID_VALUE"));
  }
  EXPECT_EQ(fake_->alive, 0);
}

TEST(CublasLtVersion, OldVersionsAreRefused) {
  EXPECT_EQ(why_unusable(130000, kOldestVersion), "");
  EXPECT_EQ(why_unusable(120800, kOldestVersion), "");
  EXPECT_EQ(why_unusable(120601, kOldestVersion),
            "need cuBLASLt of version 120800 or newer, not 120601");
  EXPECT_EQ(why_unusable(120800, kOldestVersionOfFp8),
            "need cuBLASLt of version 120900 or newer, not 120800");
}

/// In processes of their own: a library is loaded once.
TEST(CublasLtDeathTest, WhatCannotBeLoadedSaysWhy) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto reason_with = [](const char* named) {
    setenv("NVFP4_CUBLASLT", named, 1);
    std::fputs(why_unusable().c_str(), stderr);
    std::exit(0);
  };
  EXPECT_EXIT(reason_with("/nowhere/libcublasLt.so"), ExitedWithCode(0),
              "need cuBLASLt, but NVFP4_CUBLASLT = \"/nowhere/libcublasLt.so\" cannot be loaded");
  EXPECT_EXIT(reason_with("libm.so.6"), ExitedWithCode(0),
              "need cuBLASLt, but the cuBLASLt that was loaded has no cublasLtGetVersion");
}

/// NVIDIA's library: it is loaded and takes what it is told; where no GPU is, its handle fails.
TEST(RealCublasLtDeathTest, IsLoadedAndTakesTheDescriptors) {
  const char* const named = std::getenv("NVFP4_TEST_CUBLASLT");
  if (named == nullptr) GTEST_SKIP() << "NVFP4_TEST_CUBLASLT names no library";
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto run = [&] {
    setenv("NVFP4_CUBLASLT", named, 1);
    std::fprintf(stderr, "reason: \"%s\"\n", why_unusable().c_str());
    std::mt19937 random(3);
    Operand w(32, 64, random), x(3, 64, random);
    std::vector<float> sums(96);
    std::vector<Aligned> work(1);
    try {
      multiply(product_of(w, x, sums, work, 32, 3, 64));
    } catch (const Error& e) {
      std::fprintf(stderr, "error: %s\n", e.what());
    }
    std::exit(0);
  };
  EXPECT_EXIT(run(), ExitedWithCode(0),
              "reason: \"\"\nerror: gemm: cuBLASLt( [0-9]+ has no GEMM|: handle)");
}

}  // namespace
}  // namespace nvfp4::cuda::cublaslt
