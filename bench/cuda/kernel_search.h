#pragma once

#include <algorithm>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "backends/cuda/gemm/plan.h"
#include "backends/cuda/gemm/sm90/cost_model.h"
#include "gemm_arguments.h"

/// The kernels that a benchmark measures for a GEMM.
namespace nvfp4::bench {

using cuda::KernelConfig;
using TimedKernel = std::pair<KernelConfig, double>;
using TimeKernel = std::function<double(const KernelConfig&)>;  ///< returns microseconds
using KernelExists = std::function<bool(const KernelConfig&)>;

inline bool is_faster(const TimedKernel& a, const TimedKernel& b) { return a.second < b.second; }

/// Returns the tiles that may be fast with m rows of x.
inline std::vector<KernelConfig> sensible_kernels(std::int64_t k, std::int64_t m) {
  std::vector<KernelConfig> kernels = cuda::kernel_configs(cuda::kSm90Kernels);
  std::erase_if(kernels, [&](const KernelConfig& c) {
    return c.m == 1 || (c.m >= 2 * m && c.m > 8) || (c.m == 2 && m > 2) || c.m * 32 < m ||
           (m >= 1024 && (c.m < 128 || c.split_k > 2)) || k / 64 < c.split_k * 4;
  });
  return kernels;
}

/// Returns the names of an architecture's kernels that may be fast with m rows of x.
inline std::vector<std::string> kernel_names(std::string_view architecture, std::int64_t m) {
  std::vector<std::string> names;
  for (const cuda::Architecture* a : cuda::architectures())
    if (a->name == architecture)
      for (const KernelConfig& c : cuda::kernel_configs(a->kernels))
        if (c.m > 1 && (c.m <= 8 || c.m < 4 * m) && c.m * 32 >= m)
          names.push_back(cuda::kernel_name(c, *a));
  return names;
}

/// Measures each kernel, launched as by the cost model.
inline std::vector<TimedKernel> time_each(const cuda::KernelProblem& problem,
                                          const KernelExists& exists, const TimeKernel& time) {
  std::vector<TimedKernel> times;
  for (const KernelConfig& c : sensible_kernels(problem.k, problem.m))
    if (exists(c)) {
      const KernelConfig kernel = cuda::with_estimates(problem, c);
      times.emplace_back(kernel, time(kernel));
    }
  return times;
}

}  // namespace nvfp4::bench
