#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "backends/cuda/gemm/architecture.h"
#include "backends/cuda/gemm/sm90/kernels.h"

/// Chooses the kernels of sm_90 and how they divide a GEMM. All functions are pure.
namespace nvfp4::cuda {

/// Returns why a kernel cannot compute the problem, or an empty string.
std::string why_impossible(const KernelProblem& problem, const KernelConfig& kernel);
bool is_possible(const KernelProblem& problem, const KernelConfig& kernel);
/// Reports whether a possible kernel may be fast. A tile is at most twice as large as M. Where
/// warps load x themselves, one tile covers x.
bool is_sensible(const KernelProblem& problem, const KernelConfig& kernel);

/// Returns the kernel with the least estimated time. With batch_invariant its sums do not depend on
/// M. SwiGLU uses the sums of the same GEMM without it.
KernelConfig choose_kernel(const KernelProblem& problem);

/// Returns one or two parts that cover the rows of one group. With one part, the second has 0 rows.
/// With two, the first has whole rounds of tiles, and the rest avoids another round.
std::array<PlanPart, 2> choose_kernels(const KernelProblem& problem);

/// Reports whether almost every weight is read by one block only, so that it need not stay in the
/// L2 cache.
bool reads_weights_once(const KernelProblem& problem, const KernelConfig& kernel);

/// Returns the number of steps along K of a block: the unit of
/// KernelConfig::launch_dependents_step.
std::int64_t steps_of(const KernelProblem& problem, const KernelConfig& kernel);

/// Adds the likely best stream-K steps, launch_dependents_step and prefetched stages to a tile and
/// split.
KernelConfig with_estimates(const KernelProblem& problem, KernelConfig kernel);

/// Returns kernels to measure, sorted by estimated time, and variants of one tile: other
/// launch_dependents_step, prefetched stages and stream-K steps. See Architecture.
std::vector<KernelConfig> sm90_candidates(const KernelProblem& problem);
std::vector<KernelConfig> sm90_variants(const KernelProblem& problem, const KernelConfig& kernel);

/// Returns the time that choose_kernel() minimizes, in microseconds on one H200.
double estimated_time(const KernelProblem& problem, const KernelConfig& kernel);

/// Reports whether blocks may leave `kernel.stream_k_steps` stages of K to other blocks, and
/// whether such blocks exist.
bool can_stream_k(const KernelProblem& problem, const KernelConfig& kernel);

/// Returns the number of blocks that take slices of K, see KernelConfig::stream_k_steps.
std::int64_t stream_k_block_count(const KernelProblem& problem, const KernelConfig& kernel);

/// Returns the grid without stream-K blocks: a block for each possible tile, or the number of
/// resident blocks if a block takes several tiles. It is at most 2^31 if m · n / 64² is.
std::int64_t block_count(const KernelProblem& problem, const KernelConfig& kernel);

}  // namespace nvfp4::cuda
