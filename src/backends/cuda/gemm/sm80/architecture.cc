#include "backends/cuda/gemm/architecture.h"

#include "backends/cuda/gemm/sm80/cost_model.h"
#include "backends/cuda/gemm/sm80/launch.h"

namespace nvfp4::cuda {
namespace {

bool supports(const Capability& gpu) { return gpu.major >= 8; }

std::array<PlanPart, 2> choose(const KernelProblem& problem) {
  return {{{problem.m, sm80::choose_kernel(problem)}, {}}};
}

std::string summation(const KernelProblem&, const KernelConfig& kernel) {
  return sm80::summation(sm80::kernel_of(kernel).warps.k, kernel.split_k);
}

}  // namespace

extern const Architecture kSm80;
const Architecture kSm80{
    .name = "sm80",
    .supports = supports,
    .kernels = sm80::kKernels,
    .choose = choose,
    .why_impossible = sm80::why_impossible,
    .stage_k = sm80::stage_k,
    .grid = sm80::block_count,
    .workspace_bytes = sm80::workspace_bytes,
    .summation = summation,
#ifdef NVFP4_WITH_CUDA
    .launch = sm80::launch,
#else
    .launch = nullptr,
#endif
    .candidates = sm80::candidates,
    .time = sm80::time_on,
};

}  // namespace nvfp4::cuda
