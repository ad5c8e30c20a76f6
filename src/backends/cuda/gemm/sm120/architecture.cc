#include "backends/cuda/gemm/architecture.h"

#include "backends/cuda/gemm/sm120/cost_model.h"
#include "backends/cuda/gemm/sm80/cost_model.h"
#ifdef NVFP4_WITH_OMMA
#include "backends/cuda/gemm/sm120/launch.h"
#endif

namespace nvfp4::cuda {
namespace {

std::array<PlanPart, 2> choose(const KernelProblem& problem) {
  return {{{problem.m, sm120::choose_kernel(problem)}, {}}};
}

double time(const KernelProblem& problem, const Capability&) {
  return sm120::estimated_time(problem, sm120::choose_kernel(problem));
}

std::string summation(const KernelProblem&, const KernelConfig& kernel) {
  return sm80::summation(sm120::kernel_of(kernel).warps.k, kernel.split_k, ", 64 columns at once");
}

}  // namespace

extern const Architecture kSm120;
const Architecture kSm120{
    .name = "sm120",
    .supports = [](const Capability& gpu) { return gpu.major == 12; },
    .kernels = sm120::kKernels,
    .choose = choose,
    .why_impossible = sm120::why_impossible,
    .stage_k = sm120::stage_k,
    .grid = sm80::block_count,
    .workspace_bytes = sm80::workspace_bytes,
    .summation = summation,
#ifdef NVFP4_WITH_OMMA
    .launch = sm120::launch,
#else
    .launch = nullptr,
#endif
    .candidates = sm120::candidates,
    .why_none = sm120::why_none,
    .time = time,
    .reads_quantized_x = true,
};

}  // namespace nvfp4::cuda
