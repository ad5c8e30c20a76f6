#pragma once

#include "backends/cuda/gemm/arguments.h"
#include "backends/cuda/gemm/problem.h"
#include "backends/cuda/gemm_job.h"

namespace nvfp4::cuda {

/// Returns the kernel arguments that all parts of a GEMM share.
KernelArguments arguments_of(const FragmentGemmJob& job);

/// Returns the number of blocks. Throws UnsupportedError if there are too many for a grid.
int grid_of(const KernelProblem& problem, std::int64_t blocks);

}  // namespace nvfp4::cuda
