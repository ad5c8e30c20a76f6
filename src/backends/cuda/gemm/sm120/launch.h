#pragma once

#include <span>

#include "backends/cuda/gemm/plan.h"

namespace nvfp4::cuda::sm120 {

/// Enqueues the kernel of a plan: see Architecture::launch.
void launch(const KernelPlan& plan, const FragmentGemmJob& job, std::span<std::byte> workspace);
void launch_twin(const KernelPlan& plan, const FragmentGemmJob& job,
                 std::span<std::byte> workspace);

}  // namespace nvfp4::cuda::sm120
