#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "backends/cuda/gemm/problem.h"
#include "backends/cuda/gemm/sm80/kernels.h"

/// Which kernel does a product, and its grid: pure functions of its sizes.
namespace nvfp4::cuda::sm80 {

/// Why a kernel cannot do the problem, or nothing.
std::string why_impossible(const KernelProblem& problem, const KernelConfig& kernel);

/// Tiles of rows of x: if grouped, of groups of which each has the mean.
double expected_m_tiles(const KernelProblem& problem, const KernelConfig& kernel);

/// Tiles that there may be.
std::int64_t tile_count(const KernelProblem& problem, const KernelConfig& kernel);

/// A block for each tile that there may be and each of those that share its K; if grouped, some of
/// them may find none.
std::int64_t block_count(const KernelProblem& problem, const KernelConfig& kernel);

/// Counters and sums of blocks that share K.
std::int64_t workspace_bytes(const KernelProblem& problem, const KernelConfig& kernel);

/// What choose_kernel() makes as small as it can: microseconds on one H200. Other GPUs differ in
/// all kernels alike, or nearly so.
double estimated_time(const KernelProblem& problem, const KernelConfig& kernel);

/// Microseconds of the kernel that choose_kernel() takes, on a GPU that is slower in something than
/// that H200: estimates of compute capability 10.x and 12.x, nothing measured. Of W4A4 with the
/// kernel that decodes x before.
double time_on(const KernelProblem& problem, const Capability& gpu);

/// Of any list: those that can do it, within the workspace that there is, by their time.
std::vector<KernelConfig> by_time(std::span<const KernelEntry> kernels,
                                  const KernelProblem& problem,
                                  std::string (*why_impossible)(const KernelProblem&,
                                                                const KernelConfig&),
                                  double (*time)(const KernelProblem&, const KernelConfig&));

/// Those that can do it, within the workspace that there is, the likely fastest first.
std::vector<KernelConfig> candidates(const KernelProblem& problem);

/// A kernel that exists; one whose sums do not depend on the number of rows if batch_invariant.
/// SwiGLU takes one with the sums of the one that the product alone takes.
KernelConfig choose_kernel(const KernelProblem& problem);

}  // namespace nvfp4::cuda::sm80
