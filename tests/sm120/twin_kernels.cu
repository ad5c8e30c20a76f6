// Every kernel of gemm/sm120 on a Hopper GPU, with the twin of the one instruction that it does not
// have, against sums in integers, bit for bit. A program of its own: it needs no other kernel.
#include <gtest/gtest.h>

#include "backends/cuda/gemm/sm120/omma_kernel.cuh"
#include "sm120/case_list.h"
#include "sm120/omma_twin.cuh"
#include "sm120/quantized.h"

namespace nvfp4::cuda::sm120 {
namespace twin_kernels {

#define EXPECT_CUDA(call) ASSERT_EQ(call, cudaSuccess) << cudaGetErrorString(cudaGetLastError())

/// Memory that ends where the last byte does: memcheck sees what is read behind it.
class Gpu {
 public:
  Gpu() = default;
  Gpu(const Gpu&) = delete;
  ~Gpu() {
    for (void* p : memory_) cudaFree(p);
  }
  template <class T>
  T* put(const std::vector<T>& v) {
    void* p = nullptr;
    EXPECT_EQ(cudaMalloc(&p, v.size() * sizeof(T)), cudaSuccess);
    EXPECT_EQ(cudaMemcpy(p, v.data(), v.size() * sizeof(T), cudaMemcpyHostToDevice), cudaSuccess);
    memory_.push_back(p);
    return static_cast<T*>(p);
  }
  template <class T>
  void get(std::vector<T>& v, const T* from) {
    EXPECT_EQ(cudaMemcpy(v.data(), from, v.size() * sizeof(T), cudaMemcpyDeviceToHost), cudaSuccess)
        << cudaGetErrorString(cudaGetLastError());
  }
  template <class Config>
  void run(const QuantizedX& x, const KernelArguments& p, int blocks, bool) {
    EXPECT_CUDA(cudaFuncSetAttribute(omma_gemm_kernel<Config>,
                                     cudaFuncAttributeMaxDynamicSharedMemorySize,
                                     Config::kSharedBytes));
    omma_gemm_kernel<Config><<<blocks, Config::kThreads, Config::kSharedBytes>>>(x, p);
    EXPECT_CUDA(cudaGetLastError());
    EXPECT_CUDA(cudaDeviceSynchronize());
  }

 private:
  std::vector<void*> memory_;
};

class CudaOmmaTwin : public testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    cudaDeviceProp gpu{};
    if (cudaGetDeviceProperties(&gpu, 0) != cudaSuccess) GTEST_SKIP() << "no GPU";
    if (gpu.major != 9) GTEST_SKIP() << "the twins are for sm_90, this GPU is sm_" << gpu.major;
  }
};

template <int kIndex>
void run_kernel() {
  for (const test::OmmaCase& c : test::omma_cases(kKernels[kIndex])) {
    Gpu gpu;
    test::expect_chain<OmmaConfigAt<kIndex, false, OmmaTwin>>(c, gpu);
  }
  for (const test::OmmaCase& c : test::omma_swiglu_cases(kKernels[kIndex])) {
    Gpu gpu;
    test::expect_chain<OmmaConfigAt<kIndex, true, OmmaTwin>>(c, gpu);
  }
}

TEST_P(CudaOmmaTwin, HasTheSumsOfTheInstruction) {
  with_index<kKernels>(kKernels + GetParam(), [](auto index) { run_kernel<index()>(); });
}
TEST_P(CudaOmmaTwin, QuantizesSwigluAsTheDefinition) {
  with_index<kKernels>(kKernels + GetParam(), [](auto index) {
    Gpu gpu;
    test::expect_quantized<OmmaConfigAt<index(), true, OmmaTwin>>(kKernels[index()], gpu);
  });
}

INSTANTIATE_TEST_SUITE_P(Tiles, CudaOmmaTwin,
                         testing::Range(0, static_cast<int>(std::size(kKernels))),
                         [](const auto& test) {
                           const Kernel& e = kKernels[test.param];
                           std::string name = "m";
                           name += std::to_string(e.m);
                           name += 'n';
                           return name += std::to_string(e.n);
                         });

template <int kIndex>
using Twin = OmmaConfigAt<kIndex, false, OmmaTwin>;

/// All depths from 64 to 16384 that are multiples of 64, a sixteenth in each test.
class CudaOmmaTwinDepths : public CudaOmmaTwin {};
TEST_P(CudaOmmaTwinDepths, EveryTileHasTheSumsOfTheInstruction) {
  for (int k = 64 + GetParam() * 1024; k <= (GetParam() + 1) * 1024; k += 64)
    test::expect_depth<Twin, Gpu>(k);
}
INSTANTIATE_TEST_SUITE_P(To, CudaOmmaTwinDepths, testing::Range(0, 16),
                         [](const auto& test) { return std::to_string((test.param + 1) * 1024); });

}  // namespace twin_kernels
}  // namespace nvfp4::cuda::sm120
