#include "backends/cuda/gemm/sm80/cost_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "backends/cuda/gemm/plan.h"
#include "core/require.h"

namespace nvfp4::cuda::sm80 {
namespace {

/// Tiles of rows of x: if grouped, of groups of which each has the mean.
double expected_m_tiles(const KernelProblem& p, const KernelConfig& t) {
  if (p.routed) return static_cast<double>(p.groups);
  if (!p.grouped) return static_cast<double>(p.groups * ceil_div(p.m, t.m));
  const double mean = static_cast<double>(p.m) / static_cast<double>(p.groups);
  // Rows fall upon groups at random: a group of small mean is empty with chance exp(-mean).
  return static_cast<double>(p.groups) *
         std::max(1 - std::exp(-mean), mean / t.m + 0.5 * std::min(1.0, mean));
}

/// Microseconds, of rounds of a block for each multiprocessor: stages hide a part of each other's.
struct Cost {
  double start, stage, stage_of_round, round;
};
/// In the order of kKernels.
constexpr Cost kCosts[] = {
    {0, 0.102, 0.308, 1.26},        // m = 1, n = 32
    {0.0894, 0.0946, 0.294, 1.30},  // n = 64
    {0, 0.139, 0.296, 1.24},        // m = 2, n = 16
    {0, 0.130, 0.400, 1.26},        // n = 32
    {0.0894, 0.130, 0.400, 1.30},   // n = 64
    {0, 0.160, 0.340, 1.24},        // m = 8, n = 16
    {0, 0.122, 0.310, 1.15},        // n = 32
    {0.235, 0.0951, 0.301, 1.24},   // n = 64
    {0.235, 0.150, 0.500, 1.24},    // n = 128
    {0, 0.136, 0.385, 1.10},        // m = 16, n = 32
    {0.177, 0.119, 0.374, 1.27},    // n = 64
    {0.177, 0.119, 0.374, 1.27},    // n = 128
    {0, 0.120, 0.242, 1.18},        // m = 32, n = 64
    {0, 0.0938, 0.236, 0.965},      // n = 128
    {0, 0.150, 0.400, 1.2},         // n = 256
    {0, 0.152, 0.392, 1.52},        // m = 64, n = 64
    {0, 0.200, 0.800, 1.76},        // n = 128
    {0, 0.121, 0.80, 3.0},          // n = 256
    {0, 0.119, 0.422, 1.64},        // m = 128, n = 64
    {0.737, 0.154, 0.771, 3.56},    // n = 128
    {0, 0, 1.25, 5.0},              // n = 256
    {0, 0, 1.30, 6.34},             // m = 256, n = 128
};
static_assert(std::size(kCosts) == std::size(kKernels));

/// Microseconds more of blocks that share K: to give and take their sums, and for each element.
constexpr double kSplitStart = 1.2, kSplitElement = 2.5e-6;
/// What a workspace may take, as docs of max_workspace_bytes say.
constexpr std::int64_t kMostWorkspace = 6 << 20;

std::int64_t tile_count(const KernelProblem& p, const KernelConfig& t) {
  const std::int64_t n_tiles = ceil_div(p.n, t.n);
  if (p.routed) return p.groups * n_tiles;
  if (!p.grouped) return p.groups * ceil_div(p.m, t.m) * n_tiles;
  // One row in every group, and the others so that each fills up a tile more.
  const std::int64_t busy = std::min(p.groups, p.m);
  return (busy + (p.m - busy) / t.m) * n_tiles;
}

}  // namespace

std::string why_impossible(const KernelProblem& p, const KernelConfig& t) {
  if (p.routed != is_routed(t))
    return p.routed ? "is not for a routing" : "is for products with a routing only";
  if (p.swiglu && t.n < 32) return "is not for SwiGLU: it needs tiles of n = 32 and more";
  if (p.batch_invariant && !is_batch_invariant(t))
    return "is not batch-invariant: its order of summation depends on the number of rows";
  if (t.split_k > 1 && tile_count(p, t) > kMostSplitTiles)
    return fmt::format("shares K between blocks of {} tiles, at most {} can be", tile_count(p, t),
                       kMostSplitTiles);
  return "";
}

std::int64_t block_count(const KernelProblem& p, const KernelConfig& t) {
  return tile_count(p, t) * t.split_k;
}

std::int64_t workspace_bytes(const KernelProblem& p, const KernelConfig& t) {
  return t.split_k == 1 ? 0 : kCounterBytes + block_count(p, t) * t.m * t.n * 4;
}

double estimated_time(const KernelProblem& p, const KernelConfig& t) {
  const Cost& cost = kCosts[index_of(t)];
  const double blocks =
      expected_m_tiles(p, t) * static_cast<double>(ceil_div(p.n, t.n) * t.split_k);
  const double rounds = std::ceil(blocks / std::max(1, p.multiprocessors));
  const auto stages =
      static_cast<double>(ceil_div(ceil_div(p.k, kTileCols), warps_of(t).k * t.split_k));
  const double shared = t.split_k == 1 ? 0 : kSplitStart + blocks * t.m * t.n * kSplitElement;
  return cost.start + stages * (cost.stage + cost.stage_of_round * rounds) + cost.round * rounds +
         shared;
}

std::vector<KernelConfig> candidates(const KernelProblem& p) {
  std::vector<std::pair<double, KernelConfig>> found;
  for (const KernelConfig& t : kernel_configs(kKernels)) {
    if (t.split_k > 1 && (!p.stream_k || workspace_bytes(p, t) > kMostWorkspace)) continue;
    if (why_impossible(p, t).empty()) found.emplace_back(estimated_time(p, t), t);
  }
  std::ranges::stable_sort(found, {}, &std::pair<double, KernelConfig>::first);
  std::vector<KernelConfig> kernels;
  for (const auto& [time, kernel] : found) kernels.push_back(kernel);
  return kernels;
}

KernelConfig choose_kernel(const KernelProblem& p) {
  if (!p.swiglu) return candidates(p).front();
  KernelProblem alone = p;
  alone.swiglu = false;
  const KernelConfig t = choose_kernel(alone);
  return {t.m, std::max(32, t.n), t.split_k};  // of n = 16 and 32 the sums are the same
}

}  // namespace nvfp4::cuda::sm80
