#pragma once

#include <string>

#include "backends/cuda/gemm/problem.h"

/// Which products cuBLASLt is asked for, and an estimate of their time: pure functions.
namespace nvfp4::cuda::sm100 {

/// Why it is not asked for a problem, whatever the machine has, or nothing.
std::string why_not(const KernelProblem& problem);

/// Microseconds on a GPU of 148 multiprocessors such as a B200: arithmetic, not measured.
double estimated_time(const KernelProblem& problem);

}  // namespace nvfp4::cuda::sm100
