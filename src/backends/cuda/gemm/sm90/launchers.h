#pragma once

#include <cuda_runtime_api.h>

#include "backends/cuda/gemm/sm90/tensor_maps.h"

/// The launch functions. Each is in the .cu file of its name, because kernels take long to compile.
namespace nvfp4::cuda {

using Sm90Launcher = void(const KernelConfig& kernel, const TensorMaps& maps,
                          const KernelArguments& p, int blocks, cudaStream_t stream);

Sm90Launcher sm90_gemm_bf16, sm90_gemm_f16;
/// The same with a SwiGLU epilogue.
Sm90Launcher sm90_gemm_bf16_swiglu, sm90_gemm_f16_swiglu;

}  // namespace nvfp4::cuda
