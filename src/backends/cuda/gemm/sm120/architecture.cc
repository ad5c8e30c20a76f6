#include "backends/cuda/gemm/architecture.h"

#include "backends/cuda/gemm/sm120/cost_model.h"
#include "backends/cuda/gemm/sm120/launch.h"
#include "backends/cuda/gemm/sm80/cost_model.h"

namespace nvfp4::cuda {
namespace {

std::array<PlanPart, 2> choose(const KernelProblem& problem) {
  return {{{problem.m, sm120::choose_kernel(problem)}, {}}};
}

double time(const KernelProblem& problem, const Capability& gpu) {
  KernelProblem p = problem;
  p.multiprocessors = gpu.multiprocessors;
  return sm120::estimated_time(p, sm120::choose_kernel(p));
}

std::string summation(const KernelProblem&, const KernelConfig& kernel) {
  return sm80::summation(sm120::kernel_of(kernel).warps.k, kernel.split_k, ", 64 columns at once");
}

constexpr Architecture architecture(std::string_view name, bool (*supports)(const Capability&),
                                    bool only_by_name, decltype(Architecture::launch) launch) {
  return {.name = name,
          .supports = supports,
          .kernels = sm120::kKernels,
          .choose = choose,
          .why_impossible = sm120::why_impossible,
          .stage_k = sm120::stage_k,
          .grid = sm80::block_count,
          .workspace_bytes = sm80::workspace_bytes,
          .summation = summation,
          .launch = launch,
          .candidates = sm120::candidates,
          .why_none = sm120::why_none,
          .time = time,
          .reads_quantized_x = true,
          .only_by_name = only_by_name};
}

#ifdef NVFP4_WITH_OMMA
constexpr auto* kLaunch = sm120::launch;
#else
constexpr decltype(Architecture::launch) kLaunch = nullptr;
#endif
#ifdef NVFP4_WITH_OMMA_TWIN
constexpr auto* kLaunchTwin = sm120::launch_twin;
#else
constexpr decltype(Architecture::launch) kLaunchTwin = nullptr;
#endif

}  // namespace

extern const Architecture kSm120, kSm120Twin;
const Architecture kSm120 = architecture(
    "sm120", [](const Capability& gpu) { return gpu.major == 12; }, false, kLaunch);
/// The same kernels on a Hopper GPU with the instruction in software, for tests.
const Architecture kSm120Twin = architecture(
    "sm120-twin", [](const Capability& gpu) { return gpu.major == 9; }, true, kLaunchTwin);

}  // namespace nvfp4::cuda
