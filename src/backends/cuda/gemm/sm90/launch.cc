#include "backends/cuda/gemm/sm90/launch.h"

#include "backends/cuda/gemm/make_arguments.h"
#include "backends/cuda/gemm/sm90/cost_model.h"
#include "backends/cuda/gemm/sm90/launchers.h"
#include "backends/cuda/runtime.h"

/// Converts a plan and a job to arguments, tensor maps and launches.
namespace nvfp4::cuda {
namespace {

/// Sets the arguments of one part's kernel. Returns its grid.
int set_kernel(const KernelProblem& problem, const KernelConfig& kernel, const FragmentGemmJob& job,
               std::span<std::byte> workspace, KernelArguments& p) {
  p.split_k = kernel.split_k;
  p.launch_dependents_step = kernel.launch_dependents_step;
  p.prefetch_stages = kernel.prefetch_stages;
  if (!problem.routed) p.x_box = box_rows(kernel, problem.grouped ? job.x.rows : problem.m);
  p.tma_store = has_tma_store(kernel) &&
                (problem.m >= kernel.m || (problem.grouped && has_tma_store_boxes(kernel))) &&
                p.wide_stores && p.codes == nullptr && job.out.dtype == job.x.dtype &&
                !job.x_global_per_row;
  p.out_box = out_box_rows(kernel, problem.grouped);
  p.weights_policy = reads_weights_once(problem, kernel) ? kEvictFirst : kEvictNormal;
  p.stream_k_steps = kernel.stream_k_steps;
  p.stream_k_blocks = static_cast<int>(stream_k_block_count(problem, kernel));
  if (p.stream_k_blocks > 0) {
    p.stream_k_flags = reinterpret_cast<std::uint32_t*>(workspace.data());
    p.stream_k_sums = reinterpret_cast<float*>(workspace.data() + kStreamKFlagBytes);
  }
  return grid_of(problem, block_count(problem, kernel)) + p.stream_k_blocks;
}

Sm90Launcher* launcher(DType type, bool swiglu) {
  if (swiglu) return type == DType::bf16 ? sm90_gemm_bf16_swiglu : sm90_gemm_f16_swiglu;
  return type == DType::bf16 ? sm90_gemm_bf16 : sm90_gemm_f16;
}

}  // namespace

void sm90_launch(const KernelPlan& plan, const FragmentGemmJob& job,
                 std::span<std::byte> workspace) {
  KernelArguments p = arguments_of(job);
  KernelProblem problem = plan.problem;
  problem.groups = problem.routed ? p.m_total : p.groups;
  const std::int64_t rows = problem.routed ? 1 : job.x.rows;
  Sm90Launcher* const launch = launcher(job.x.dtype, problem.swiglu);
  for (std::size_t i = 0; i < plan.parts.size() && p.m_end < rows; ++i) {
    const PlanPart& part = plan.parts[i];
    // A plan also serves fewer rows than it was made for.
    const bool last = i + 1 == plan.parts.size() || plan.parts[i + 1].rows == 0;
    problem.m = last ? rows - p.m_end : std::min(part.rows, rows - p.m_end);
    p.m_begin = p.m_end;
    p.m_end += static_cast<int>(problem.m);
    const int blocks = set_kernel(problem, part.kernel, job, workspace, p);
    TensorMaps maps;
    if (part.kernel.m != kPerWarpXM && !problem.routed)
      maps.x = x_tensor_map(job.x, p.k, p, part.kernel);
    if (p.tma_store) maps.out = out_tensor_map(job.out, p.out_box, problem.swiglu);
    launch(part.kernel, maps, p, blocks, stream_of(job.stream));
  }
}

}  // namespace nvfp4::cuda
