// Chooses the kernels of sm_90 that are worth measuring for a problem.
#include <algorithm>
#include <cmath>
#include <utility>

#include "backends/cuda/gemm/plan.h"
#include "backends/cuda/gemm/sm90/cost_model.h"

namespace nvfp4::cuda {

std::vector<KernelConfig> sm90_candidates(const KernelProblem& problem) {
  std::vector<std::pair<double, KernelConfig>> found;
  for (const KernelConfig& tile : kernel_configs(kSm90Kernels)) {
    if (!is_sensible(problem, tile)) continue;
    const KernelConfig kernel = with_estimates(problem, tile);
    found.emplace_back(estimated_time(problem, kernel), kernel);
  }
  // Kernels without an estimate come last: they are not known to be slow.
  std::ranges::stable_sort(found, {}, &std::pair<double, KernelConfig>::first);
  std::vector<KernelConfig> kernels;
  for (const auto& [time, kernel] : found) kernels.push_back(kernel);
  return kernels;
}

std::vector<KernelConfig> sm90_variants(const KernelProblem& problem, const KernelConfig& kernel) {
  constexpr std::int64_t kFewRows = 64;  // up to this M a kernel leaves room for the next one
  constexpr int kStepsApart[] = {2, 5, 8, 12, 16};
  constexpr int kStages[] = {1, 2, 4, kAllStages};
  std::vector<KernelConfig> others;
  const auto add = [&](const KernelConfig& other) {
    if (other != kernel && is_possible(problem, other) && std::ranges::count(others, other) == 0)
      others.push_back(other);
  };
  KernelConfig other = kernel;
  if (problem.m <= kFewRows && !problem.grouped && !problem.routed) {
    const auto steps = static_cast<int>(steps_of(problem, kernel));
    other.launch_dependents_step = 0;
    add(other);
    for (const int apart : kStepsApart) {
      other.launch_dependents_step = steps - kernel.stream_k_steps - apart;
      if (other.launch_dependents_step > 0) add(other);
    }
  }
  // Warps that load their own weights always load all stages.
  if (!is_small_m(kernel) && !is_routed(kernel)) {
    other = kernel;
    for (const int stages : kStages) {
      other.prefetch_stages = stages;
      add(other);
    }
  }
  other = kernel;
  other.stream_k_steps = 0;
  add(other);
  return others;
}

}  // namespace nvfp4::cuda
