#pragma once

#include "backends/gemm_kernels.h"

namespace nvfp4::reference {

/// W4A4 sums as every backend does, bit for bit; W4A16 sums in FP64.
const GemmKernels& w4a4_kernels();
const GemmKernels& w4a16_kernels();
void finish_gemm(const GemmOutput& output, const float* sums, std::int64_t stride,
                 const GemmPart& part);

}  // namespace nvfp4::reference
