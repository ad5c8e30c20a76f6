#pragma once

#include "backends/cuda/gemm/arguments.h"
#include "backends/cuda/gemm_job.h"

namespace nvfp4::cuda {

/// Returns the kernel arguments that all parts of a GEMM share.
KernelArguments arguments_of(const FragmentGemmJob& job);

}  // namespace nvfp4::cuda
