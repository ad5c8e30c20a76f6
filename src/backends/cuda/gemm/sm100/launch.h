#pragma once

#include <span>

#include "backends/cuda/gemm/plan.h"

namespace nvfp4::cuda::sm100 {

/// Enqueues a GEMM for each group, one after the other: see Architecture::launch.
void launch(const KernelPlan& plan, const FragmentGemmJob& job, std::span<std::byte> workspace);

}  // namespace nvfp4::cuda::sm100
