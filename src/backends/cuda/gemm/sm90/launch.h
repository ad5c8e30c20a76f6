#pragma once

#include <span>

#include "backends/cuda/gemm/plan.h"

namespace nvfp4::cuda {

/// Enqueues the kernels of a plan for sm_90, see Architecture::launch.
void sm90_launch(const KernelPlan& plan, const FragmentGemmJob& job,
                 std::span<std::byte> workspace);

}  // namespace nvfp4::cuda
