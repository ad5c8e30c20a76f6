#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "backends/cuda/gemm/problem.h"
#include "backends/cuda/gemm/sm80/kernels.h"

/// Chooses the kernel of a GEMM and its grid. All functions are pure.
namespace nvfp4::cuda::sm80 {

/// Returns why a kernel cannot compute the problem, or an empty string.
std::string why_impossible(const KernelProblem& problem, const KernelConfig& kernel);
/// Returns the same for a kernel of any list of kernels by mma.sync.
std::string why_impossible(const KernelProblem& problem, const Kernel& kernel,
                           const KernelConfig& config);

/// Returns the expected number of tiles along M. In a grouped GEMM rows are distributed at random.
double expected_m_tiles(const KernelProblem& problem, const KernelConfig& kernel);

/// Returns the largest possible number of tiles.
std::int64_t tile_count(const KernelProblem& problem, const KernelConfig& kernel);

/// Returns the number of blocks: split_k blocks for each possible tile. In a grouped GEMM some
/// blocks may have no tile.
std::int64_t block_count(const KernelProblem& problem, const KernelConfig& kernel);

/// Returns the bytes of counters and sums of blocks that share K.
std::int64_t workspace_bytes(const KernelProblem& problem, const KernelConfig& kernel);

/// Returns a sentence about the order of summation. `parts` is the number of parts of K of a block;
/// `step` follows the order, such as ", 64 columns at once".
std::string summation(int parts, int split_k, std::string_view step = "");

/// Returns the time that choose_kernel() minimizes, in microseconds on one H200. On other GPUs the
/// ratios of the kernels' times are similar.
double estimated_time(const KernelProblem& problem, const KernelConfig& kernel);

/// Returns the time of the chosen kernel in microseconds on a GPU that is in part slower than an
/// H200. For compute capability 10.x and 12.x these are estimates, not measurements. W4A4 includes
/// the kernel that dequantizes x.
double time_on(const KernelProblem& problem, const Capability& gpu);

/// Returns the possible kernels of a list, within the workspace limit, sorted by time.
std::vector<KernelConfig> by_time(std::span<const Kernel> kernels, const KernelProblem& problem,
                                  std::string (*why_impossible)(const KernelProblem&,
                                                                const KernelConfig&),
                                  double (*time)(const KernelProblem&, const KernelConfig&));

/// Returns the possible kernels within the workspace limit, the likely fastest first.
std::vector<KernelConfig> candidates(const KernelProblem& problem);

/// Returns an existing kernel. With batch_invariant its sums do not depend on M. SwiGLU uses a
/// kernel with the same sums as the GEMM alone.
KernelConfig choose_kernel(const KernelProblem& problem);

}  // namespace nvfp4::cuda::sm80
