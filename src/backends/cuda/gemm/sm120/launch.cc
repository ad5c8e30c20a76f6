#include "backends/cuda/gemm/sm120/launch.h"

#include "backends/cuda/gemm/make_arguments.h"
#include "backends/cuda/gemm/sm120/cost_model.h"
#include "backends/cuda/gemm/sm120/launchers.h"
#include "backends/cuda/runtime.h"
#include "core/require.h"

namespace nvfp4::cuda::sm120 {
namespace {

/// Of fragments that are decoded, by which the epilogue multiplies: here sums are in units of 1.
constexpr float kFragmentUnit = 256.0f;

QuantizedX quantized_x_of(const QuantizedView& x) {
  const QuantizedShape& s = x.shape;
  require<ShapeError>(reinterpret_cast<std::uintptr_t>(x.scales) % 4 == 0,
                      "gemm: x.scales = {}, must be aligned to 4 bytes",
                      static_cast<const void*>(x.scales));
  return {.codes = x.codes,
          .scales = x.scales,
          .row_bytes = s.cols / 2,
          .scale_step = scale_offset(s.layout, 0, 4, s.rows, s.blocks()),
          .layout = s.layout,
          .rows = static_cast<int>(s.rows),
          .blocks = static_cast<int>(s.blocks())};
}

void launch_by(Launcher* launcher, const KernelPlan& plan, const FragmentGemmJob& job,
               std::span<std::byte> workspace) {
  const QuantizedX x = quantized_x_of(*job.quantized_x);
  GemmArguments p = arguments_of(job);
  p.factor /= kFragmentUnit;
  KernelProblem problem = plan.problem;
  // A plan is also for fewer rows than it was made for.
  problem.groups = problem.routed ? p.m_total : p.groups;
  problem.m = problem.routed ? 1 : job.x.rows;
  p.m_end = static_cast<int>(problem.m);
  const KernelConfig& kernel = plan.parts[0].kernel;
  const std::int64_t blocks = block_count(problem, kernel);
  require<UnsupportedError>(
      blocks < std::int64_t{1} << 31,
      "gemm: {} groups of {} rows and N = {} need {} blocks, at most 2^31 - 1", problem.groups,
      problem.m, problem.n, blocks);
  if (blocks == 0) return;
  p.split_k = kernel.split_k;
  if (p.split_k > 1) {
    p.stream_k_flags = reinterpret_cast<std::uint32_t*>(workspace.data());
    p.stream_k_sums = reinterpret_cast<float*>(workspace.data() + sm80::kCounterBytes);
  }
  launcher(kernel, x, p, static_cast<int>(blocks), stream_of(job.stream));
}

}  // namespace

#ifdef NVFP4_WITH_OMMA
void launch(const KernelPlan& plan, const FragmentGemmJob& job, std::span<std::byte> workspace) {
  launch_by(plan.problem.swiglu ? gemm_swiglu : gemm, plan, job, workspace);
}
#endif
#ifdef NVFP4_WITH_OMMA_TWIN
void launch_twin(const KernelPlan& plan, const FragmentGemmJob& job,
                 std::span<std::byte> workspace) {
  launch_by(plan.problem.swiglu ? twin_gemm_swiglu : twin_gemm, plan, job, workspace);
}
#endif

}  // namespace nvfp4::cuda::sm120
