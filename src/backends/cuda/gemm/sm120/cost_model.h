#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "backends/cuda/gemm/problem.h"
#include "backends/cuda/gemm/sm120/kernels.h"

/// Which kernel does a product, and an estimate of its time: pure functions of its sizes. Grid and
/// workspace are those of sm80.
namespace nvfp4::cuda::sm120 {

/// Why there is no kernel for a problem, or nothing.
std::string why_none(const KernelProblem& problem);
/// Why a kernel cannot do the problem, or nothing.
std::string why_impossible(const KernelProblem& problem, const KernelConfig& kernel);

/// What limits a multiprocessor while a chunk of 64 columns of a tile is multiplied, in cycles.
struct ChunkCycles {
  double tensor;  ///< the instruction: 4096 operations a cycle
  double issue;   ///< one instruction a cycle for each of four schedulers
  double shared;  ///< 128 bytes a cycle of shared memory
  /// The largest; of the others a part is not hidden: a guess.
  double together() const {
    const double most = std::max({tensor, issue, shared});
    return most + (tensor + issue + shared - most) / 5;
  }
};
ChunkCycles chunk_cycles(const KernelConfig& kernel);

/// Microseconds at 2.4 GHz, and 1.5 TB/s for each 170 multiprocessors: not measured.
double estimated_time(const KernelProblem& problem, const KernelConfig& kernel);

/// Those that can do it, within the workspace that there is, by their estimated time.
std::vector<KernelConfig> candidates(const KernelProblem& problem);
KernelConfig choose_kernel(const KernelProblem& problem);

}  // namespace nvfp4::cuda::sm120
