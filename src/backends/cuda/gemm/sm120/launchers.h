#pragma once

#include <cuda_runtime_api.h>

#include "backends/cuda/gemm/arguments.h"
#include "backends/cuda/gemm/sm120/quantized_x.h"

/// The launch functions. Each is in the .cu file of its name.
namespace nvfp4::cuda::sm120 {

using Launcher = void(const KernelConfig& kernel, const QuantizedX& x, const KernelArguments& p,
                      int blocks, cudaStream_t stream);

Launcher gemm;
/// The same with a SwiGLU epilogue.
Launcher gemm_swiglu;

}  // namespace nvfp4::cuda::sm120
