#pragma once

#include "backends/cuda/gemm/arguments.h"
#include "backends/cuda/gemm_job.h"

namespace nvfp4::cuda {

/// A job -> what its kernels are told: all that the parts of a product have in common.
GemmArguments arguments_of(const FragmentGemmJob& job);

}  // namespace nvfp4::cuda
