#pragma once

#include <atomic>

#include "backends/cuda/gemm/fragment_gemm.h"
#include "backends/cuda/gemm/kernel.cuh"
#include "backends/cuda/gemm/routed_kernel.cuh"
#include "backends/cuda/gemm/strip_kernel.cuh"
#include "backends/cuda/runtime.h"

namespace nvfp4::cuda {

/// Asks for the shared memory of a kernel, once on each device.
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

/// The tensor maps of the kernel, then p.
template <class Config, auto* kernel, class... Maps>
void launch_kernel(const FragmentGemm& p, int blocks, int shared_bytes, cudaStream_t stream,
                   const Maps&... maps) {
  prepare<Config, kernel>();
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(static_cast<unsigned>(blocks));
  config.blockDim = dim3(Config::kThreads);
  config.dynamicSmemBytes = static_cast<std::size_t>(shared_bytes);
  config.stream = stream;
  cudaLaunchAttribute attributes[2] = {};
  attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[0].val.programmaticStreamSerializationAllowed = 1;
  attributes[1].id = cudaLaunchAttributeClusterDimension;
  attributes[1].val.clusterDim.x = static_cast<unsigned>(p.splits);
  attributes[1].val.clusterDim.y = attributes[1].val.clusterDim.z = 1;
  config.attrs = attributes;
  config.numAttrs = p.splits > 1 ? 2 : 1;
  check(cudaLaunchKernelEx(&config, kernel, maps..., p), "gemm: kernel launch");
}

template <class Config>
void launch_config(const TensorMaps& maps, const FragmentGemm& p, int blocks, cudaStream_t stream) {
  launch_kernel<Config, &fragment_gemm_kernel<Config>>(p, blocks, Config::kSharedBytes, stream,
                                                       maps.x, maps.out);
}

template <DType kType, bool kSwiglu>
void launch_routed(const GemmTile& tile, const FragmentGemm& p, int blocks, cudaStream_t stream) {
  const auto launch = [&]<int kRows>() {
    using Config = RoutedConfig<kType, kRows, kSwiglu>;
    launch_kernel<Config, &routed_gemm_kernel<Config>>(p, blocks, Config::shared_bytes(p.chunks),
                                                       stream);
  };
  if (tile.rows == 32) return launch.template operator()<32>();
  if (tile.rows == 64) return launch.template operator()<64>();
  if (tile.rows == 128) return launch.template operator()<128>();
  launch.template operator()<224>();
}

template <DType kType, bool kSwiglu>
void launch_strips(const GemmTile& tile, const TensorMaps& maps, const FragmentGemm& p, int blocks,
                   cudaStream_t stream) {
  const auto launch = [&]<int kTokens, int kRows, int kChunks = 2>() {
    using Config = StripConfig<kType, kTokens, kRows, kSwiglu, kChunks>;
    launch_kernel<Config, &strip_gemm_kernel<Config>>(p, blocks, Config::kSharedBytes, stream,
                                                      maps.x);
  };
  const auto rows = [&]<int kTokens>() {
    if (tile.rows == 32) return launch.template operator()<kTokens, 32>();
    if (tile.rows == 64) return launch.template operator()<kTokens, 64>();
    // SwiGLU is of 32 rows and more.
    if constexpr (kTokens < 16 && !kSwiglu)
      if (tile.rows == 16) {
        if constexpr (kTokens == 8)
          if (strip_chunks(tile, p.x_box) == 1) return launch.template operator()<kTokens, 16, 1>();
        return launch.template operator()<kTokens, 16>();
      }
    if constexpr (kTokens == kOwnXTokens) return launch.template operator()<kTokens, 128>();
  };
  if (tile.tokens == kOwnXTokens) return rows.template operator()<kOwnXTokens>();
  if (tile.tokens == 8) return rows.template operator()<8>();
  rows.template operator()<16>();
}

template <DType kType, bool kSwiglu>
void launch_tile(const GemmTile& tile, const TensorMaps& maps, const FragmentGemm& p, int blocks,
                 cudaStream_t stream) {
  if (is_routed(tile)) return launch_routed<kType, kSwiglu>(tile, p, blocks, stream);
  if (is_strips(tile)) return launch_strips<kType, kSwiglu>(tile, maps, p, blocks, stream);
  const auto wide = [&]<int kTokens>() {
    if (tile.rows == 192)
      launch_config<FragmentConfig<kType, kTokens, 192, kSwiglu>>(maps, p, blocks, stream);
    else
      launch_config<FragmentConfig<kType, kTokens, 128, kSwiglu>>(maps, p, blocks, stream);
  };
  const auto rows = [&]<int kTokens>() {
    if constexpr (!kSwiglu && (kTokens == 16 || kTokens == 32 || kTokens == 64))
      if (tile.help > 0)
        return launch_config<FragmentConfig<kType, kTokens, 64, kSwiglu, false, true>>(
            maps, p, blocks, stream);
    if constexpr (kTokens == 64)
      if (leaves_room(tile)) {
        if (tile.rows == 64)
          launch_config<FragmentConfig<kType, kTokens, 64, kSwiglu, true>>(maps, p, blocks, stream);
        else
          launch_config<FragmentConfig<kType, kTokens, 128, kSwiglu, true>>(maps, p, blocks,
                                                                            stream);
        return;
      }
    if (tile.rows == 64)
      return launch_config<FragmentConfig<kType, kTokens, 64, kSwiglu>>(maps, p, blocks, stream);
    if constexpr (kTokens == 64 || kTokens == 128)
      wide.template operator()<kTokens>();
    else
      launch_config<FragmentConfig<kType, kTokens, 128, kSwiglu>>(maps, p, blocks, stream);
  };
  switch (tile.tokens) {
    case 8:
      return rows.template operator()<8>();
    case 16:
      return rows.template operator()<16>();
    case 32:
      return rows.template operator()<32>();
    case 48:
      return launch_config<FragmentConfig<kType, 48, 192, kSwiglu>>(maps, p, blocks, stream);
    case 64:
      return rows.template operator()<64>();
    case 96:
      return wide.template operator()<96>();
    case 128:
      return rows.template operator()<128>();
    case 144:
      return launch_config<FragmentConfig<kType, 144, 128, kSwiglu>>(maps, p, blocks, stream);
    case 160:
      return launch_config<FragmentConfig<kType, 160, 128, kSwiglu>>(maps, p, blocks, stream);
    case 192:
      return launch_config<FragmentConfig<kType, 192, 128, kSwiglu>>(maps, p, blocks, stream);
    default:
      if (tile.rows == 64)
        return launch_config<FragmentConfig<kType, 256, 64, kSwiglu>>(maps, p, blocks, stream);
      launch_config<FragmentConfig<kType, 256, 128, kSwiglu>>(maps, p, blocks, stream);
  }
}

}  // namespace nvfp4::cuda
