#include "backends/cuda/gemm/sm80/launch.h"

#include "backends/cuda/gemm/make_arguments.h"
#include "backends/cuda/gemm/sm80/cost_model.h"
#include "backends/cuda/gemm/sm80/launchers.h"
#include "backends/cuda/runtime.h"

namespace nvfp4::cuda::sm80 {
namespace {

Launcher* launcher(DType type, bool swiglu) {
  if (swiglu) return type == DType::bf16 ? gemm_bf16_swiglu : gemm_f16_swiglu;
  return type == DType::bf16 ? gemm_bf16 : gemm_f16;
}

}  // namespace

int set_grid(KernelArguments& p, const KernelPlan& plan, const FragmentGemmJob& job,
             std::span<std::byte> workspace) {
  KernelProblem problem = plan.problem;
  // A plan also serves fewer rows than it was made for.
  problem.groups = problem.routed ? p.m_total : p.groups;
  problem.m = problem.routed ? 1 : job.x.rows;
  p.m_end = static_cast<int>(problem.m);
  const KernelConfig& kernel = plan.parts[0].kernel;
  const int blocks = grid_of(problem, block_count(problem, kernel));
  p.split_k = kernel.split_k;
  if (p.split_k > 1) {
    p.stream_k_flags = reinterpret_cast<std::uint32_t*>(workspace.data());
    p.stream_k_sums = reinterpret_cast<float*>(workspace.data() + kCounterBytes);
  }
  return blocks;
}

void launch(const KernelPlan& plan, const FragmentGemmJob& job, std::span<std::byte> workspace) {
  KernelArguments p = arguments_of(job);
  const int blocks = set_grid(p, plan, job, workspace);
  if (blocks > 0)
    launcher(job.x.dtype, plan.problem.swiglu)(plan.parts[0].kernel, p, blocks,
                                               stream_of(job.stream));
}

}  // namespace nvfp4::cuda::sm80
