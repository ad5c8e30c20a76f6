#pragma once

#include <utility>

#include "backends/cuda/gemm/launch_kernel.cuh"
#include "backends/cuda/gemm/sm120/launchers.h"
#include "backends/cuda/gemm/sm120/omma_kernel.cuh"

namespace nvfp4::cuda::sm120 {

/// Launches the kernel if it is entry kIndex of the list. Returns whether it is.
template <class Product, bool kSwiglu, int kIndex>
bool launch_if(int index, const QuantizedX& x, const KernelArguments& p, int blocks,
               cudaStream_t stream) {
  if (index != kIndex) return false;
  using Config = OmmaConfig<kIndex, kSwiglu, Product>;
  launch_kernel<Config, &omma_gemm_kernel<Config>>(p, blocks, Config::kSharedBytes, stream, x);
  return true;
}

/// Instantiates and launches the kernels of the list.
template <class Product, bool kSwiglu>
void dispatch(const KernelConfig& kernel, const QuantizedX& x, const KernelArguments& p, int blocks,
              cudaStream_t stream) {
  const auto any = [&]<std::size_t... kIndex>(std::index_sequence<kIndex...>) {
    return (launch_if<Product, kSwiglu, static_cast<int>(kIndex)>(index_of(kernel), x, p, blocks,
                                                                  stream) ||
            ...);
  };
  any(std::make_index_sequence<std::size(kKernels)>{});
}

}  // namespace nvfp4::cuda::sm120
