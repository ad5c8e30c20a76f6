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

/// Returns the ten fastest kernels. It measures each tile alone, then other steps at which
/// dependents launch, then other numbers of prefetched stages and stream-K steps. A last round
/// measures the best in turn, since the minimum of so many measurements is partly luck.
inline std::vector<TimedKernel> tune(const cuda::KernelProblem& problem, const KernelExists& exists,
                                     const TimeKernel& time) {
  constexpr std::int64_t kFewRows = 64;  // up to here a kernel leaves room for the next one
  constexpr int kMostDependents = 32, kMostPrefetch = 5, kMostStreamK = 12, kRepeats = 5;
  constexpr std::size_t kNearlyFastest = 4, kFastest = 10;
  std::vector<TimedKernel> tiles;
  for (const KernelConfig& c : sensible_kernels(problem.k, problem.m))
    if (exists(c)) tiles.emplace_back(c, time(c));
  // Steps and stages change a tile's time by less than this factor.
  const double limit = 1.2 * std::min_element(tiles.begin(), tiles.end(), is_faster)->second;
  std::vector<TimedKernel> kernels;
  for (const TimedKernel& tile : tiles) {
    if (tile.second > limit) continue;
    std::vector<TimedKernel> of_tile = {tile};
    KernelConfig c = tile.first;
    for (int step = 1; step <= kMostDependents && problem.m <= kFewRows; ++step) {
      c.launch_dependents_step = step;
      of_tile.emplace_back(c, time(c));
    }
    std::sort(of_tile.begin() + 1, of_tile.end(), is_faster);
    // Warps that load W themselves load all of their stages.
    const std::size_t count = cuda::is_small_m(c) ? 0 : std::min(kNearlyFastest, of_tile.size());
    for (std::size_t i = 0; i < count; ++i)
      for (int stages = 1; stages <= kMostPrefetch; ++stages) {
        c = of_tile[i].first;
        c.prefetch_stages = stages;
        of_tile.emplace_back(c, time(c));
      }
    std::sort(of_tile.begin(), of_tile.end(), is_faster);
    c = of_tile[0].first;
    if (c.m == 64) c.launch_dependents_step = 0;
    for (c.stream_k_steps = 1; c.stream_k_steps <= kMostStreamK && exists(c); ++c.stream_k_steps)
      of_tile.emplace_back(c, time(c));
    kernels.insert(kernels.end(), of_tile.begin(), of_tile.end());
  }
  std::sort(kernels.begin(), kernels.end(), is_faster);
  kernels.resize(std::min(kFastest, kernels.size()));
  std::vector<std::vector<double>> times(kernels.size());
  for (int repeat = 0; repeat < kRepeats; ++repeat)
    for (std::size_t i = 0; i < kernels.size(); ++i) times[i].push_back(time(kernels[i].first));
  for (std::size_t i = 0; i < kernels.size(); ++i) {
    std::sort(times[i].begin(), times[i].end());
    kernels[i].second = times[i][kRepeats / 2];
  }
  std::sort(kernels.begin(), kernels.end(), is_faster);
  return kernels;
}

inline std::vector<TimedKernel> search(Kernels which, const cuda::KernelProblem& problem,
                                       const KernelExists& exists, const TimeKernel& time) {
  return which == Kernels::each    ? time_each(problem, exists, time)
         : which == Kernels::tuned ? tune(problem, exists, time)
                                   : std::vector<TimedKernel>{};
}

}  // namespace nvfp4::bench
