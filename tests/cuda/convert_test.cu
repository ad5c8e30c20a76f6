// The GPU's conversions against the formats' definition, over every FP32, or every stride-th.
#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "backends/cuda/device/encode.cuh"
#include "backends/cuda/device/swiglu.cuh"
#include "nvfp4/device.h"
#include "quantizers/row_math.h"
#include "test_stride.h"

namespace nvfp4 {
namespace {

__device__ std::uint32_t sample(std::uint32_t stride) {
  return (blockIdx.x * blockDim.x + threadIdx.x) * stride;
}

/// Element i of each group of eight is the float with the bits 8·sample + i.
__global__ void count_e2m1(unsigned long long* wrong, std::uint32_t stride) {
  const std::uint32_t first = sample(stride) * 8;
  float x[16];
  bool has_nan = false;
  for (int i = 0; i < 16; ++i) {
    x[i] = __uint_as_float(first + i % 8);
    has_nan |= isnan(x[i]);
  }
  // A global and a block scale of 1: all are multiplied by 1.
  const cuda::Encoder encoder(1.0f);
  const uint2 codes = encoder(x, encoder.scale_code(6.0f), has_nan);
  for (int i = 0; i < 8; ++i) {
    const std::uint32_t want = E2M1::from_float(x[i]).bits;
    if ((codes.x >> 4 * i & 0xF) != want || (codes.y >> 4 * i & 0xF) != want)
      atomicAdd(wrong, 1ull);
  }
}

template <DType kType>
__device__ void encode_words(std::uint32_t number, unsigned long long* wrong) {
  // Every pair of a sign and exponent with another, each with a mantissa that differs; every
  // divisor from the least to the greatest, and every block scale.
  cuda::Block<kType> block;
  for (int i = 0; i < 8; ++i)
    block.words[i] = (number * 0x9E3779B9u + static_cast<std::uint32_t>(i) * 0x85EBCA6Bu) ^
                     (number >> 3) * 0xC2B2AE35u;
  const float divisor = __uint_as_float(number << 8 & 0x7FFFFFFFu);
  if (!(divisor > 0) || divisor > FLT_MAX) return;
  float x[16];
  for (int i = 0; i < 16; ++i) x[i] = block.value(i);
  std::uint32_t bits = block.amax_bits();
  // The variant for GPUs before sm_86.
  cuda::Block16Bit<cuda::Block<kType>::kInfinity, cuda::MaxMagnitudes> before_86;
  for (int i = 0; i < 8; ++i) before_86.words[i] = block.words[i];
  const std::uint32_t bits_before_86 = before_86.amax_bits();
  if (bits > cuda::Block<kType>::kInfinity) {
    if (bits_before_86 <= cuda::Block<kType>::kInfinity) atomicAdd(wrong, 1ull);
    bits = block.replace_nans();
  } else if (bits_before_86 != bits) {
    atomicAdd(wrong, 1ull);
  }
  const float amax = cuda::Block<kType>::magnitude(bits);
  if (amax != block_amax(x, 16)) atomicAdd(wrong, 1ull);
  const cuda::Encoder encoder(divisor);
  const std::uint32_t code = encoder.scale_code(amax);
  if (code != scale_for(amax, divisor, kSixth).bits) atomicAdd(wrong, 1ull);
  const uint2 codes = encoder(block, code);
  const float factor = element_factor(E4M3{static_cast<std::uint8_t>(code)}, divisor);
  for (int i = 0; i < 16; ++i) {
    const std::uint32_t word = i < 8 ? codes.x : codes.y;
    if ((word >> i % 8 * 4 & 0xF) != E2M1::from_float(x[i] * factor).bits) atomicAdd(wrong, 1ull);
  }
}
__global__ void count_blocks(unsigned long long* wrong, std::uint32_t stride) {
  encode_words<DType::bf16>(sample(stride), wrong);
  encode_words<DType::f16>(sample(stride), wrong);
}

__global__ void count_e4m3(unsigned long long* wrong, std::uint32_t stride) {
  const std::uint32_t u = sample(stride);  // no sign: scales have none
  const float x = __uint_as_float(u & 0x7FFFFFFFu);
  const std::uint8_t got = cuda::e4m3_bits(x);
  if (got != E4M3::from_float(x).bits) atomicAdd(wrong, 1ull);
  if (got != E4M3::kNaN && cuda::e4m3_value(got) != E4M3{got}.to_float()) atomicAdd(wrong, 1ull);
}

/// Bits of the exponential, added up: the CPU must find the same sum.
__global__ void sum_exponentials(unsigned long long* sum, std::uint32_t stride) {
  const std::uint32_t u = sample(stride) * 61u;
  const float e = exponential(__uint_as_float(u));
  if (!isnan(e)) atomicAdd(sum, static_cast<unsigned long long>(__float_as_uint(e)));
}

__global__ void count_silu(unsigned long long* wrong, std::uint32_t stride) {
  const float x = __uint_as_float(sample(stride));
  if (!(x <= cuda::kFastGate)) return;
  for (const float v : {x, -x})
    if (__float_as_uint(cuda::silu_fast(v)) != __float_as_uint(silu(v))) atomicAdd(wrong, 1ull);
}

/// Estimates that are further from silu() than silu_error(), less what products with a factor take.
__global__ void count_estimates(unsigned long long* wrong, std::uint32_t stride) {
  const float x = __uint_as_float(sample(stride));
  if (!(x <= cuda::kFastGate) || x < 0x1p-100f) return;
  for (const float v : {x, -x}) {
    const double exact = silu(v);
    const double off = fabs(static_cast<double>(cuda::silu_estimate(v)) - exact);
    if (!(off <= (cuda::silu_error(x) - 0x1p-23) * fabs(exact))) atomicAdd(wrong, 1ull);
  }
}

__global__ void sum_silu(unsigned long long* sum, std::uint32_t stride) {
  const std::uint32_t u = sample(stride) * 61u;
  const float y = cuda::swiglu_one(__uint_as_float(u), 1.0f, INFINITY);
  if (!isnan(y)) atomicAdd(sum, static_cast<unsigned long long>(__float_as_uint(y)));
}

constexpr std::uint32_t kThreads = 256;

/// Whole blocks of threads for about every stride-th of `values`.
std::uint32_t samples_of(std::uint32_t values) {
  return std::max(1u, values / test::test_stride() / kThreads) * kThreads;
}

unsigned long long run(void (*kernel)(unsigned long long*, std::uint32_t), std::uint32_t values) {
  unsigned long long* device = nullptr;
  unsigned long long host = ~0ull;
  EXPECT_EQ(cudaMalloc(&device, sizeof host), cudaSuccess);
  EXPECT_EQ(cudaMemset(device, 0, sizeof host), cudaSuccess);
  kernel<<<samples_of(values) / kThreads, kThreads>>>(device, test::test_stride());
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  EXPECT_EQ(cudaMemcpy(&host, device, sizeof host, cudaMemcpyDefault), cudaSuccess);
  EXPECT_EQ(cudaFree(device), cudaSuccess);
  return host;
}

class CudaConversions : public testing::Test {
 protected:
  void SetUp() override {
    if (const std::string reason = why_unavailable(Device::cuda()); !reason.empty())
      GTEST_SKIP() << "no GPU to run on: " << reason;
  }
};

TEST_F(CudaConversions, E2M1OfEveryFloat) { EXPECT_EQ(run(count_e2m1, 1u << 29), 0u); }

TEST_F(CudaConversions, BlocksOfEveryDivisor) { EXPECT_EQ(run(count_blocks, 1u << 26), 0u); }

TEST_F(CudaConversions, E4M3OfEveryNonNegativeFloat) { EXPECT_EQ(run(count_e4m3, 1u << 31), 0u); }

TEST_F(CudaConversions, TheExponentialHasTheBitsOfTheCpu) {
  constexpr std::uint32_t kCount = 1u << 26;
  unsigned long long want = 0;
  for (std::uint32_t i = 0; i < samples_of(kCount); ++i) {
    const float e = exponential(bits_float(i * test::test_stride() * 61u));
    if (!std::isnan(e)) want += float_bits(e);
  }
  EXPECT_EQ(run(sum_exponentials, kCount), want);
}

TEST_F(CudaConversions, TheFastSiluOfEveryFloat) { EXPECT_EQ(run(count_silu, 1u << 31), 0u); }

TEST_F(CudaConversions, SiluIsWithinItsErrorBound) {
  EXPECT_EQ(run(count_estimates, 1u << 31), 0u);
}

TEST_F(CudaConversions, SiluHasTheBitsOfTheCpu) {
  constexpr std::uint32_t kCount = 1u << 26;
  unsigned long long want = 0;
  for (std::uint32_t i = 0; i < samples_of(kCount); ++i) {
    const float y = silu(bits_float(i * test::test_stride() * 61u));
    if (!std::isnan(y)) want += float_bits(y);
  }
  EXPECT_EQ(run(sum_silu, kCount), want);
}

}  // namespace
}  // namespace nvfp4
