#pragma once

#include <string>

#include "backends/cuda/gemm/problem.h"

/// Decides which GEMMs cuBLASLt computes and estimates their time. All functions are pure.
namespace nvfp4::cuda::sm100 {

/// Returns why cuBLASLt cannot compute the problem on any machine, or an empty string.
std::string why_not(const KernelProblem& problem);

/// Returns the estimated time in microseconds on a GPU with 148 multiprocessors, such as a B200. It
/// is not measured.
double estimated_time(const KernelProblem& problem);

}  // namespace nvfp4::cuda::sm100
