#pragma once

#include "backends/cuda/gemm/launch_kernel.cuh"
#include "backends/cuda/gemm/sm90/routed_kernel.cuh"
#include "backends/cuda/gemm/sm90/small_m_kernel.cuh"
#include "backends/cuda/gemm/sm90/tensor_maps.h"
#include "backends/cuda/gemm/sm90/wgmma_kernel.cuh"

namespace nvfp4::cuda {

template <DType kType, bool kSwiglu, int kTileN>
void launch_routed(const KernelArguments& p, int blocks, cudaStream_t stream) {
  using Config = RoutedConfig<kType, kTileN, kSwiglu>;
  launch_kernel<Config, &routed_gemm_kernel<Config>>(p, blocks, Config::shared_bytes(p.chunks),
                                                     stream);
}

template <DType kType, bool kSwiglu, int kTileM, int kTileN>
void launch_small_m(const KernelConfig& kernel, const TensorMaps& maps, const KernelArguments& p,
                    int blocks, cudaStream_t stream) {
  const auto launch = [&]<int kChunks>() {
    using Config = SmallMConfig<kType, kTileM, kTileN, kSwiglu, kChunks>;
    launch_kernel<Config, &small_m_gemm_kernel<Config>>(p, blocks, Config::kSharedBytes, stream,
                                                        maps.x);
  };
  if constexpr (small_m_chunks({kTileM, kTileN}, kTileM) == 1)
    if (small_m_chunks(kernel, p.x_box) == 1) return launch.template operator()<1>();
  launch.template operator()<2>();
}

template <DType kType, bool kSwiglu, int kTileM, int kTileN, bool kDependentsEarly, bool kStreamK>
void launch_wgmma(const TensorMaps& maps, const KernelArguments& p, int blocks,
                  cudaStream_t stream) {
  using Config = WgmmaConfig<kType, kTileM, kTileN, kSwiglu, kDependentsEarly, kStreamK>;
  launch_kernel<Config, &wgmma_gemm_kernel<Config>>(p, blocks, Config::kSharedBytes, stream, maps.x,
                                                    maps.out);
}

/// Launches a kernel of the list.
template <DType kType, bool kSwiglu, int kIndex>
void launch(const KernelConfig& kernel, const TensorMaps& maps, const KernelArguments& p,
            int blocks, cudaStream_t stream) {
  constexpr Kernel kKernel = kSm90Kernels[kIndex];
  constexpr int kTileM = kKernel.m, kTileN = kKernel.n;
  if constexpr (kKernel.mainloop == MainloopKind::routed) {
    launch_routed<kType, kSwiglu, kTileN>(p, blocks, stream);
  } else if constexpr (kKernel.mainloop == MainloopKind::small_m) {
    if constexpr (!kSwiglu || kTileN >= 32)  // see why_impossible()
      launch_small_m<kType, kSwiglu, kTileM, kTileN>(kernel, maps, p, blocks, stream);
  } else {
    if constexpr (kKernel.stream_k && !kSwiglu)
      if (kernel.stream_k_steps > 0)
        return launch_wgmma<kType, kSwiglu, kTileM, kTileN, false, true>(maps, p, blocks, stream);
    if constexpr (kKernel.early_stage_chunks > 0)
      if (leaves_room(kernel))
        return launch_wgmma<kType, kSwiglu, kTileM, kTileN, true, false>(maps, p, blocks, stream);
    launch_wgmma<kType, kSwiglu, kTileM, kTileN, false, false>(maps, p, blocks, stream);
  }
}

/// Instantiates the kernels of the list and launches one.
template <DType kType, bool kSwiglu>
void dispatch(const KernelConfig& kernel, const TensorMaps& maps, const KernelArguments& p,
              int blocks, cudaStream_t stream) {
  with_index<kSm90Kernels>(sm90_kernel(kernel), [&](auto index) {
    launch<kType, kSwiglu, index()>(kernel, maps, p, blocks, stream);
  });
}

}  // namespace nvfp4::cuda
