#pragma once

#include <cuda_runtime_api.h>

#include "backends/cuda/gemm/arguments.h"
#include "backends/cuda/gemm/sm120/quantized_x.h"

/// The kernels; each set is in the .cu of its name.
namespace nvfp4::cuda::sm120 {

using Launcher = void(const KernelConfig& kernel, const QuantizedX& x, const GemmArguments& p,
                      int blocks, cudaStream_t stream);

/// By the instruction, and with SwiGLU as their epilogue; the same with its twin.
Launcher gemm, gemm_swiglu, twin_gemm, twin_gemm_swiglu;

}  // namespace nvfp4::cuda::sm120
