#include "backends/cuda/gemm/sm80/cost_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "backends/cuda/gemm/plan.h"
#include "core/require.h"

namespace nvfp4::cuda::sm80 {
double expected_m_tiles(const KernelProblem& p, const KernelConfig& t) {
  if (p.routed) return static_cast<double>(p.groups);
  if (!p.grouped) return static_cast<double>(p.groups * ceil_div(p.m, t.m));
  const double mean = static_cast<double>(p.m) / static_cast<double>(p.groups);
  // Rows are distributed at random: a group with a small mean is empty with probability exp(-mean).
  return static_cast<double>(p.groups) *
         std::max(1 - std::exp(-mean), mean / t.m + 0.5 * std::min(1.0, mean));
}

std::int64_t tile_count(const KernelProblem& p, const KernelConfig& t) {
  const std::int64_t n_tiles = ceil_div(p.n, t.n);
  if (p.routed) return p.groups * n_tiles;
  if (!p.grouped) return p.groups * ceil_div(p.m, t.m) * n_tiles;
  // The maximum: one row in every group, and each further tile is full.
  const std::int64_t busy = std::min(p.groups, p.m);
  return (busy + (p.m - busy) / t.m) * n_tiles;
}

std::string why_impossible(const KernelProblem& p, const Kernel& kernel, const KernelConfig& t) {
  const bool is_routed = kernel.mainloop == MainloopKind::routed;
  if (p.routed != is_routed)
    return p.routed ? "is not for routed GEMMs" : "is for routed GEMMs only";
  if (p.swiglu && t.n < 32) return "is not for SwiGLU: it needs tiles of n = 32 and more";
  if (p.batch_invariant && (kernel.warps.k > 1 || t.split_k > 1))
    return "is not batch-invariant: its order of summation depends on the number of rows";
  if (t.split_k > 1 && tile_count(p, t) > kMostSplitTiles)
    return fmt::format("shares K between blocks of {} tiles, at most {} can be", tile_count(p, t),
                       kMostSplitTiles);
  return "";
}

std::string why_impossible(const KernelProblem& p, const KernelConfig& t) {
  return why_impossible(p, kernel_of(t), t);
}

std::int64_t block_count(const KernelProblem& p, const KernelConfig& t) {
  return tile_count(p, t) * t.split_k;
}

std::int64_t workspace_bytes(const KernelProblem& p, const KernelConfig& t) {
  return t.split_k == 1 ? 0 : kCounterBytes + block_count(p, t) * t.m * t.n * 4;
}

std::string summation(int parts, int split_k, std::string_view step) {
  const std::string of_block =
      parts == 1 ? fmt::format("K in order{}", step)
                 : fmt::format("K in {} interleaved parts{}, added in order", parts, step);
  if (split_k == 1) return of_block;
  return fmt::format("{} of each of {} blocks, whose sums are added in order", of_block, split_k);
}

double estimated_time(const KernelProblem& p, const KernelConfig& t) {
  const KernelCost& cost = kernel_of(t).costs[0];
  const double blocks =
      expected_m_tiles(p, t) * static_cast<double>(ceil_div(p.n, t.n) * t.split_k);
  const double rounds = std::ceil(blocks / std::max(1, p.multiprocessors));
  const auto stages =
      static_cast<double>(ceil_div(ceil_div(p.k, kTileCols), kernel_of(t).warps.k * t.split_k));
  const double shared =
      t.split_k == 1 ? 0 : cost.split + blocks * t.m * t.n * 1e-6 * cost.split_element;
  return cost.start + stages * (cost.stage + cost.step * rounds) + cost.round * rounds + shared;
}

/// SwiGLU has no tiles of n = 16. This tile sums in the same order.
constexpr KernelConfig kSwigluOfNarrow{.m = 2, .n = 32};
static_assert([] {
  for (const Kernel& k : kKernels)
    if (k.n < 32 && (k.warps.k != kernel_of(kSwigluOfNarrow).warps.k || k.split_k != 1))
      return false;
  return true;
}());

std::vector<KernelConfig> by_time(std::span<const Kernel> kernels, const KernelProblem& p,
                                  std::string (*why_impossible)(const KernelProblem&,
                                                                const KernelConfig&),
                                  double (*time)(const KernelProblem&, const KernelConfig&)) {
  constexpr std::int64_t kMostWorkspace = 6 << 20;  // as documented for max_workspace_bytes
  std::vector<std::pair<double, KernelConfig>> found;
  for (const KernelConfig& t : kernel_configs(kernels)) {
    if (t.split_k > 1 && (!p.stream_k || workspace_bytes(p, t) > kMostWorkspace)) continue;
    if (why_impossible(p, t).empty()) found.emplace_back(time(p, t), t);
  }
  std::ranges::stable_sort(found, {}, &std::pair<double, KernelConfig>::first);
  std::vector<KernelConfig> sorted;
  for (const auto& [microseconds, kernel] : found) sorted.push_back(kernel);
  return sorted;
}

std::vector<KernelConfig> candidates(const KernelProblem& p) {
  return by_time(kKernels, p, why_impossible, estimated_time);
}

KernelConfig choose_kernel(const KernelProblem& p) {
  if (!p.swiglu) return candidates(p).front();
  KernelProblem alone = p;
  alone.swiglu = false;
  const KernelConfig t = choose_kernel(alone);
  return t.n < 32 ? kSwigluOfNarrow : t;
}

namespace {

struct Rates {
  int major;
  double gigahertz;
  /// BF16 operations with FP32 sums by mma.sync, for each cycle and multiprocessor.
  double operations;
  double bytes;  ///< bytes of memory for each microsecond and multiprocessor
};
/// RTX 5090: NVIDIA's numbers, memory at 85 %. B200: memory at 85 %, mma.sync as on Hopper.
constexpr Rates kRates[] = {{12, 2.4, 512, 1.5e6 / 170}, {10, 1.85, 2500, 6.8e6 / 148}};

}  // namespace

double time_on(const KernelProblem& p, const Capability& gpu) {
  const KernelConfig t = choose_kernel(p);
  double time = estimated_time(p, t), decode = p.quantized_x ? 3 : 0;
  const auto* const rates = std::ranges::find(kRates, gpu.major, &Rates::major);
  if (rates == std::end(kRates)) return time + decode;
  const double multiprocessors = std::max(1, gpu.multiprocessors);
  const double rows = expected_m_tiles(p, t) * std::max(8, t.m), n = static_cast<double>(p.n),
               k = static_cast<double>(p.k);
  constexpr double kOfPeak = 0.8;
  const double multiply =
      2 * rows * n * k / (rates->operations * kOfPeak * rates->gigahertz * 1e3 * multiprocessors);
  const double bytes = rates->bytes * multiprocessors;
  const double read = static_cast<double>(p.groups) * n * k * 9 / 16 / bytes;
  if (p.quantized_x)
    decode += static_cast<double>(p.routed ? p.groups : p.m) * k * (9.0 / 16 + 2) / bytes;
  return std::max({time, multiply, read}) + decode;
}

}  // namespace nvfp4::cuda::sm80
