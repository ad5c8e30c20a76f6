#pragma once

#include "backends/cuda/gemm/sm120/launchers.h"

/// The kernels of gemm/sm120 for a Hopper GPU, with the instruction in software.
namespace nvfp4::cuda::sm120 {

Launcher twin_gemm;
/// The same with a SwiGLU epilogue.
Launcher twin_gemm_swiglu;

}  // namespace nvfp4::cuda::sm120
