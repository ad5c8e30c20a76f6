#pragma once

#include <cuda_runtime_api.h>

#include "backends/cuda/gemm/arguments.h"

/// The launch functions. Each is in the .cu file of its name, because kernels take long to compile.
namespace nvfp4::cuda::sm80 {

using Launcher = void(const KernelConfig& kernel, const KernelArguments& p, int blocks,
                      cudaStream_t stream);

Launcher gemm_bf16, gemm_f16;
/// The same with a SwiGLU epilogue.
Launcher gemm_bf16_swiglu, gemm_f16_swiglu;

}  // namespace nvfp4::cuda::sm80
