#pragma once

#include <cstdint>
#include <string>

#include "backends/cuda/gemm/problem.h"
#include "backends/cuda/gemm/sm80/kernels.h"

/// Which kernel does a product, and its grid: pure functions of its sizes.
namespace nvfp4::cuda::sm80 {

/// Why a kernel cannot do the problem, or nothing.
std::string why_impossible(const KernelProblem& problem, const KernelConfig& kernel);

/// A block for each tile that there may be; if grouped, some of them may find none.
std::int64_t block_count(const KernelProblem& problem, const KernelConfig& kernel);

/// What choose_kernel() makes as small as it can: microseconds on one H200. Other GPUs differ in
/// all kernels alike, or nearly so.
double estimated_time(const KernelProblem& problem, const KernelConfig& kernel);

/// A kernel that exists; one whose sums do not depend on the number of rows if batch_invariant.
/// SwiGLU takes one with the sums of the one that the product alone takes.
KernelConfig choose_kernel(const KernelProblem& problem);

}  // namespace nvfp4::cuda::sm80
