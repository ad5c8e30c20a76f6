#pragma once

#include <span>

#include "backends/cuda/gemm/arguments.h"
#include "backends/cuda/gemm/plan.h"

namespace nvfp4::cuda::sm80 {

/// Completes arguments_of(job) with rows, split-K and the workspace. Returns the number of blocks.
/// Throws UnsupportedError if there are too many.
int set_grid(KernelArguments& p, const KernelPlan& plan, const FragmentGemmJob& job,
             std::span<std::byte> workspace);

/// Enqueues the kernel of a plan, see Architecture::launch.
void launch(const KernelPlan& plan, const FragmentGemmJob& job, std::span<std::byte> workspace);

}  // namespace nvfp4::cuda::sm80
