#pragma once

#include "backends/cuda/gemm/kernel.cuh"
#include "backends/cuda/runtime.h"

namespace nvfp4::cuda {

template <class Config>
void launch_config(const CUtensorMap& x, const FragmentGemm& p, int blocks, cudaStream_t stream) {
  auto* const kernel = fragment_gemm_kernel<Config>;
  static const cudaError_t ready = [&] {
    const cudaError_t size = cudaFuncSetAttribute(
        kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, Config::kSharedBytes);
    return size != cudaSuccess
               ? size
               : cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout, 100);
  }();
  check(ready, "gemm: shared memory of the kernel");
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(static_cast<unsigned>(blocks));
  config.blockDim = dim3(Config::kThreads);
  config.dynamicSmemBytes = Config::kSharedBytes;
  config.stream = stream;
  cudaLaunchAttribute attributes[2] = {};
  attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[0].val.programmaticStreamSerializationAllowed = 1;
  attributes[1].id = cudaLaunchAttributeClusterDimension;
  attributes[1].val.clusterDim.x = static_cast<unsigned>(p.splits);
  attributes[1].val.clusterDim.y = attributes[1].val.clusterDim.z = 1;
  config.attrs = attributes;
  config.numAttrs = p.splits > 1 ? 2 : 1;
  check(cudaLaunchKernelEx(&config, kernel, x, p), "gemm: kernel launch");
}

template <DType kType>
void launch_tile(const FragmentTile& tile, const CUtensorMap& x, const FragmentGemm& p, int blocks,
                 cudaStream_t stream) {
  const auto rows = [&]<int kTokens>() {
    if (tile.rows == 64)
      launch_config<FragmentConfig<kType, kTokens, 64>>(x, p, blocks, stream);
    else
      launch_config<FragmentConfig<kType, kTokens, 128>>(x, p, blocks, stream);
  };
  switch (tile.tokens) {
    case 8:
      return rows.template operator()<8>();
    case 16:
      return rows.template operator()<16>();
    case 32:
      return rows.template operator()<32>();
    case 64:
      return rows.template operator()<64>();
    case 128:
      return rows.template operator()<128>();
    default:
      launch_config<FragmentConfig<kType, 256, 128>>(x, p, blocks, stream);
  }
}

}  // namespace nvfp4::cuda
