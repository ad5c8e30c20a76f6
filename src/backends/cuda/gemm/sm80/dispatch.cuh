#pragma once

#include "backends/cuda/gemm/launch_kernel.cuh"
#include "backends/cuda/gemm/sm80/mma_kernel.cuh"

namespace nvfp4::cuda::sm80 {

/// Instantiates the kernels of the list and launches one.
template <DType kType, bool kSwiglu>
void dispatch(const KernelConfig& kernel, const KernelArguments& p, int blocks,
              cudaStream_t stream) {
  with_index<kKernels>(&kernel_of(kernel), [&](auto index) {
    if constexpr (!kSwiglu || kKernels[index()].n >= 32) {  // see why_impossible()
      using Config = MmaConfigAt<kType, index(), kSwiglu>;
      launch_kernel<Config, &mma_gemm_kernel<Config>>(p, blocks, Config::kSharedBytes, stream);
    }
  });
}

}  // namespace nvfp4::cuda::sm80
