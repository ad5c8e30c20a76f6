#include "backends/cuda/gemm/architecture.h"

#include "backends/cuda/gemm/sm100/cost_model.h"
#include "backends/cuda/gemm/sm100/kernels.h"
#include "backends/cuda/gemm/sm100/library_reason.h"
#ifdef NVFP4_WITH_CUDA
#include "backends/cuda/gemm/sm100/cublaslt.h"
#include "backends/cuda/gemm/sm100/launch.h"
#endif

namespace nvfp4::cuda {
namespace sm100 {

std::string (*&library_reason())() {
#ifdef NVFP4_WITH_CUDA
  static std::string (*reason)() = cublaslt::why_unusable;
#else
  static std::string (*reason)() = [] { return std::string("need a build with CUDA"); };
#endif
  return reason;
}

}  // namespace sm100
namespace {

std::string why_none(const KernelProblem& problem) {
  std::string reason = sm100::why_not(problem);
  return reason.empty() ? sm100::library_reason()() : reason;
}

}  // namespace

extern const Architecture kSm100;
/// Compute capability 10.0 and 10.3. cuBLASLt has the kernels for both.
const Architecture kSm100{
    .name = "sm100",
    .supports = [](const Capability& gpu) { return gpu.major == 10; },
    .kernels = sm100::kKernels,
    .choose =
        [](const KernelProblem& problem) {
          return std::array<PlanPart, 2>{{{problem.m, {.m = 128, .n = 128}}, {}}};
        },
    .why_impossible = [](const KernelProblem& problem,
                         const KernelConfig&) { return why_none(problem); },
    .stage_k = [](const KernelConfig&) { return 64; },
    .grid = [](const KernelProblem& p, const KernelConfig&) { return p.groups; },
    .workspace_bytes = [](const KernelProblem&, const KernelConfig&) { return std::int64_t{0}; },
    .summation = [](const KernelProblem&,
                    const KernelConfig&) { return std::string("as cuBLASLt adds up"); },
#ifdef NVFP4_WITH_CUDA
    .launch = sm100::launch,
#else
    .launch = nullptr,
#endif
    .why_none = why_none,
    .time = [](const KernelProblem& p, const Capability&) { return sm100::estimated_time(p); },
    .staging_bytes = [](const KernelProblem& p) { return sm100::staging_of(p.m, p.n, p.k).bytes; },
    .reads_quantized_x = true,
};

}  // namespace nvfp4::cuda
