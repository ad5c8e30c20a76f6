#pragma once

#include "backends/gemm_kernels.h"

namespace nvfp4::reference {

/// W4A4 sums have the bits of every backend. W4A16 sums are in FP64.
const GemmKernels& w4a4_kernels();
const GemmKernels& w4a16_kernels();
void finish_gemm(const GemmOutput& output, const float* sums, std::int64_t stride,
                 const GemmPart& part);

}  // namespace nvfp4::reference
