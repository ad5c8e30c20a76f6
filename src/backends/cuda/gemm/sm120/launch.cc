#include "backends/cuda/gemm/sm120/launch.h"

#include "backends/cuda/gemm/fragment_layout.h"
#include "backends/cuda/gemm/make_arguments.h"
#include "backends/cuda/gemm/sm80/launch.h"
#include "backends/cuda/runtime.h"
#include "core/require.h"

namespace nvfp4::cuda::sm120 {
namespace {

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

}  // namespace

void launch_by(Launcher* launcher, const KernelPlan& plan, const FragmentGemmJob& job,
               std::span<std::byte> workspace) {
  const QuantizedX x = quantized_x_of(*job.quantized_x);
  KernelArguments p = arguments_of(job);
  p.factor /= kFragmentUnit;  // these sums have unit 1
  const int blocks = sm80::set_grid(p, plan, job, workspace);
  if (blocks > 0) launcher(plan.parts[0].kernel, x, p, blocks, stream_of(job.stream));
}

#ifdef NVFP4_WITH_OMMA
void launch(const KernelPlan& plan, const FragmentGemmJob& job, std::span<std::byte> workspace) {
  launch_by(plan.problem.swiglu ? gemm_swiglu : gemm, plan, job, workspace);
}
#endif

}  // namespace nvfp4::cuda::sm120
