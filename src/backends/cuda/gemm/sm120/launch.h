#pragma once

#include <span>

#include "backends/cuda/gemm/plan.h"
#include "backends/cuda/gemm/sm120/launchers.h"

namespace nvfp4::cuda::sm120 {

/// Enqueues the kernel of a plan, see Architecture::launch.
void launch(const KernelPlan& plan, const FragmentGemmJob& job, std::span<std::byte> workspace);
/// Enqueues the kernel of a plan by another launcher. Tests have one for GPUs without the
/// instruction.
void launch_by(Launcher* launcher, const KernelPlan& plan, const FragmentGemmJob& job,
               std::span<std::byte> workspace);

}  // namespace nvfp4::cuda::sm120
