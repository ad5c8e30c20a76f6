#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "backends/cuda/gemm/architecture.h"
#include "backends/cuda/gemm/sm90/kernels.h"

/// Which kernels of sm_90 do a product, and how they cut it up: pure functions of its sizes.
namespace nvfp4::cuda {

/// Why a kernel cannot do the problem, or nothing.
std::string why_impossible(const KernelProblem& problem, const KernelConfig& kernel);
bool is_possible(const KernelProblem& problem, const KernelConfig& kernel);
/// Whether a kernel that can do the problem may be fast: no tile is larger than twice what there
/// is, and where warps bring x themselves there is one tile of it.
bool is_sensible(const KernelProblem& problem, const KernelConfig& kernel);

/// A kernel that exists; one whose sums do not depend on the number of rows if batch_invariant.
KernelConfig choose_kernel(const KernelProblem& problem);

/// The rows in one part, or in two (the second has none then): the first has whole rounds of tiles,
/// where a few more would cost another round. A product of one group.
std::array<PlanPart, 2> choose_kernels(const KernelProblem& problem);

/// Whether hardly a weight is read by more than one block: it need not stay in the L2 cache then.
bool reads_weights_once(const KernelProblem& problem, const KernelConfig& kernel);

/// Steps along K that a block takes: those that KernelConfig::launch_dependents_step counts.
std::int64_t steps_of(const KernelProblem& problem, const KernelConfig& kernel);

/// The same without the table of measurements.
KernelConfig estimate_kernel(const KernelProblem& problem);

/// A tile and split with the stream-K steps, and the step at which dependents launch, that are
/// likely to be the best.
KernelConfig with_estimates(const KernelProblem& problem, KernelConfig kernel);

/// Kernels to measure, the least estimated time first, and the same tile with other steps at which
/// dependents launch, prefetched stages and stream-K steps: see Architecture.
std::vector<KernelConfig> sm90_candidates(const KernelProblem& problem);
std::vector<KernelConfig> sm90_variants(const KernelProblem& problem, const KernelConfig& kernel);

/// What estimate_kernel() makes as small as it can, in microseconds on one H200.
double estimated_time(const KernelProblem& problem, const KernelConfig& kernel);

/// Whether blocks may leave `kernel.stream_k_steps` stages of their K to others, and there are
/// others.
bool can_stream_k(const KernelProblem& problem, const KernelConfig& kernel);

/// Blocks that take slices of K of the others, see KernelConfig::stream_k_steps.
std::int64_t stream_k_block_count(const KernelProblem& problem, const KernelConfig& kernel);

/// The grid without them: enough blocks for all tiles that there may be, or as many as run at once
/// where a block takes one tile after the other. Not more than 2^31 if m · n / 64² is not.
std::int64_t block_count(const KernelProblem& problem, const KernelConfig& kernel);

/// What was the fastest, measured by bench/ on one H200, of one group.
struct MeasuredKernel {
  std::int64_t n, k;
  std::int64_t m;  ///< rows of x: up to this many
  KernelConfig kernel;
  KernelConfig stream_k = {};  ///< with stream-K blocks, if that was faster
};
/// Ordered by n and k, and then by m.
std::span<const MeasuredKernel> measured_kernels();

}  // namespace nvfp4::cuda
