#pragma once

#include "backends/cuda/gemm/launch_kernel.cuh"
#include "backends/cuda/gemm/sm120/launchers.h"
#include "backends/cuda/gemm/sm120/omma_kernel.cuh"

namespace nvfp4::cuda::sm120 {

/// Instantiates the kernels of the list and launches one.
template <class Product, bool kSwiglu>
void dispatch(const KernelConfig& kernel, const QuantizedX& x, const KernelArguments& p, int blocks,
              cudaStream_t stream) {
  with_index<kKernels>(&kernel_of(kernel), [&](auto index) {
    using Config = OmmaConfigAt<index(), kSwiglu, Product>;
    launch_kernel<Config, &omma_gemm_kernel<Config>>(p, blocks, Config::kSharedBytes, stream, x);
  });
}

}  // namespace nvfp4::cuda::sm120
