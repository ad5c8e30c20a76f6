#pragma once

#include <atomic>

#include "backends/cuda/gemm/arguments.h"
#include "backends/cuda/runtime.h"

namespace nvfp4::cuda {

/// Sets the shared memory limit of a kernel, once for each device.
template <class Config, auto* kernel>
void prepare() {
  constexpr int kMostDevices = 64;
  static std::atomic<bool> done[kMostDevices];
  int device = 0;
  check(cudaGetDevice(&device), "cudaGetDevice");
  if (device < kMostDevices && done[device].load(std::memory_order_relaxed)) return;
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                             Config::kSharedBytes),
        "gemm: shared memory of the kernel");
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout, 100),
        "gemm: shared memory of the kernel");
  if (device < kMostDevices) done[device].store(true, std::memory_order_relaxed);
}

/// Launches the kernel with its tensor maps, then p.
template <class Config, auto* kernel, class... Maps>
void launch_kernel(const KernelArguments& p, int blocks, int shared_bytes, cudaStream_t stream,
                   const Maps&... maps) {
  prepare<Config, kernel>();
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(static_cast<unsigned>(blocks));
  config.blockDim = dim3(Config::kThreads);
  config.dynamicSmemBytes = static_cast<std::size_t>(shared_bytes);
  config.stream = stream;
  cudaLaunchAttribute attributes[2] = {};
  config.attrs = attributes;
  if (has_dependent_launch()) {
    cudaLaunchAttribute& a = attributes[config.numAttrs++];
    a.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    a.val.programmaticStreamSerializationAllowed = 1;
  }
  constexpr bool kByCluster = [] {
    if constexpr (requires { Config::kSplitsByCluster; }) return Config::kSplitsByCluster;
    return true;
  }();
  if (kByCluster && p.split_k > 1) {
    cudaLaunchAttribute& a = attributes[config.numAttrs++];
    a.id = cudaLaunchAttributeClusterDimension;
    a.val.clusterDim.x = static_cast<unsigned>(p.split_k);
    a.val.clusterDim.y = a.val.clusterDim.z = 1;
  }
  check(cudaLaunchKernelEx(&config, kernel, maps..., p), "gemm: kernel launch");
}

}  // namespace nvfp4::cuda
