#pragma once

#include <utility>

#include "backends/cuda/gemm/launch_kernel.cuh"
#include "backends/cuda/gemm/sm80/mma_kernel.cuh"

namespace nvfp4::cuda::sm80 {

/// Launches the kernel if it is entry kIndex of the list. Returns whether it is.
template <DType kType, bool kSwiglu, int kIndex>
bool launch_if(int index, const KernelArguments& p, int blocks, cudaStream_t stream) {
  if constexpr (kSwiglu && kKernels[kIndex].n < 32) {  // see why_impossible()
    return false;
  } else {
    if (index != kIndex) return false;
    using Config = MmaConfig<kType, kIndex, kSwiglu>;
    launch_kernel<Config, &mma_gemm_kernel<Config>>(p, blocks, Config::kSharedBytes, stream);
    return true;
  }
}

/// Instantiates and launches the kernels of the list.
template <DType kType, bool kSwiglu>
void dispatch(const KernelConfig& kernel, const KernelArguments& p, int blocks,
              cudaStream_t stream) {
  const auto any = [&]<std::size_t... kIndex>(std::index_sequence<kIndex...>) {
    return (
        launch_if<kType, kSwiglu, static_cast<int>(kIndex)>(index_of(kernel), p, blocks, stream) ||
        ...);
  };
  any(std::make_index_sequence<std::size(kKernels)>{});
}

}  // namespace nvfp4::cuda::sm80
