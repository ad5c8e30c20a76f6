#include "backends/cuda/gemm/architecture.h"

#include <fmt/format.h>

#include "backends/cuda/gemm/fragment_layout.h"
#include "backends/cuda/gemm/sm90/cost_model.h"
#include "backends/cuda/gemm/sm90/launch.h"

namespace nvfp4::cuda {
namespace {

/// wgmma exists on compute capability 9.x only.
bool supports(const Capability& gpu) { return gpu.major == 9; }

int stage_k(const KernelConfig& kernel) {
  const int chunks = is_routed(kernel) ? 2 * small_m_k_parts(kernel) : box_chunks(kernel, kernel.m);
  return chunks * kTileCols;
}

std::int64_t grid(const KernelProblem& problem, const KernelConfig& kernel) {
  return block_count(problem, kernel) + stream_k_block_count(problem, kernel);
}

std::int64_t workspace_bytes(const KernelProblem& problem, const KernelConfig& kernel) {
  return kernel.stream_k_steps == 0
             ? 0
             : kStreamKFlagBytes + block_count(problem, kernel) * stream_k_sum_bytes(kernel);
}

std::string summation(const KernelProblem& problem, const KernelConfig& kernel) {
  if (is_small_m(kernel) || is_routed(kernel))
    return fmt::format("K in {} interleaved parts, added in order", small_m_k_parts(kernel));
  std::string text = "K in order";
  if (!is_batch_invariant(kernel)) {
    const int parts = kernel.split_k * k_groups(kernel);
    if (parts > 1)
      text = fmt::format("K in {} parts{}, added in order", parts,
                         k_groups(kernel) > 1 ? " (interleaved within a block)" : "");
  }
  if (kernel.stream_k_steps > 0)
    text += fmt::format("; the last {} of {} stages apart, added last", kernel.stream_k_steps,
                        steps_of(problem, kernel));
  return text;
}

}  // namespace

extern const Architecture kSm90;
const Architecture kSm90{
    .name = "sm90",
    .supports = supports,
    .kernels = kSm90Kernels,
    .choose = choose_kernels,
    .why_impossible = why_impossible,
    .stage_k = stage_k,
    .grid = grid,
    .workspace_bytes = workspace_bytes,
    .summation = summation,
#ifdef NVFP4_WITH_CUDA
    .launch = sm90_launch,
#else
    .launch = nullptr,
#endif
    .candidates = sm90_candidates,
    .variants = sm90_variants,
};

}  // namespace nvfp4::cuda
