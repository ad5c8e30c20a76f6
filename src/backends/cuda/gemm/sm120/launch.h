#pragma once

#include <span>

#include "backends/cuda/gemm/plan.h"
#include "backends/fp4_instruction.h"

namespace nvfp4::cuda::sm120 {

/// Enqueues the kernel of a plan, see Architecture::launch.
void launch(const KernelPlan& plan, const FragmentGemmJob& job, std::span<std::byte> workspace);
void launch_twin(const KernelPlan& plan, const FragmentGemmJob& job,
                 std::span<std::byte> workspace);

/// Returns the FP4 instruction of a GPU, or null.
const Fp4Instruction* fp4_instruction(int compute_major);

}  // namespace nvfp4::cuda::sm120
