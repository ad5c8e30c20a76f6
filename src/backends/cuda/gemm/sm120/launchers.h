#pragma once

#include <cuda_runtime_api.h>

#include "backends/cuda/gemm/arguments.h"
#include "backends/cuda/gemm/sm120/quantized_x.h"
#include "backends/fp4_instruction.h"

/// The launch functions. Each is in the .cu file of its name.
namespace nvfp4::cuda::sm120 {

using Launcher = void(const KernelConfig& kernel, const QuantizedX& x, const KernelArguments& p,
                      int blocks, cudaStream_t stream);

/// The kernels with the instruction, without and with a SwiGLU epilogue, then those with its twin.
Launcher gemm, gemm_swiglu, twin_gemm, twin_gemm_swiglu;

/// Run the instruction, or its twin, alone: see fp4_instruction.h. `cases` are on the GPU.
using CasesLauncher = void(Fp4Case* cases, int count, int a_thread, int b_thread,
                           cudaStream_t stream);
CasesLauncher multiply_cases, twin_multiply_cases;

}  // namespace nvfp4::cuda::sm120
