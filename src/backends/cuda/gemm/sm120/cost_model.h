#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "backends/cuda/gemm/problem.h"
#include "backends/cuda/gemm/sm120/kernels.h"

/// Chooses the kernel of a GEMM and estimates its time. All functions are pure. Grid and workspace
/// are those of sm80.
namespace nvfp4::cuda::sm120 {

/// Returns why no kernel can compute the problem, or an empty string.
std::string why_none(const KernelProblem& problem);
/// Returns why a kernel cannot compute the problem, or an empty string.
std::string why_impossible(const KernelProblem& problem, const KernelConfig& kernel);

/// The cycles that a multiprocessor needs to multiply a chunk of 64 columns of a tile, for each
/// limit.
struct ChunkCycles {
  double tensor;  ///< the mma instruction: 4096 operations a cycle
  double issue;   ///< one instruction a cycle for each of four schedulers
  double shared;  ///< 128 bytes of shared memory a cycle
  /// Returns the largest, plus a guessed fifth of the others, which overlap incompletely.
  double together() const {
    const double most = std::max({tensor, issue, shared});
    return most + (tensor + issue + shared - most) / 5;
  }
};
ChunkCycles chunk_cycles(const KernelConfig& kernel);

/// Returns the time in microseconds at 2.4 GHz, and 1.5 TB/s for 170 multiprocessors. It is not
/// measured.
double estimated_time(const KernelProblem& problem, const KernelConfig& kernel);

/// Returns the possible kernels within the workspace limit, sorted by estimated time.
std::vector<KernelConfig> candidates(const KernelProblem& problem);
KernelConfig choose_kernel(const KernelProblem& problem);

}  // namespace nvfp4::cuda::sm120
