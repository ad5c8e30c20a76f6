#pragma once

#include <array>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "backends/cuda/gemm/kernel_config.h"
#include "backends/cuda/gemm/problem.h"
#include "backends/cuda/gemm_job.h"

/// What a GPU architecture provides for products: a folder of its own beside this file, and a line
/// in architectures.cc.
namespace nvfp4::cuda {

struct KernelPlan;

/// Some rows of x, one after the other, and the kernel of their product.
struct PlanPart {
  std::int64_t rows = 0;
  KernelConfig kernel = {};
};

struct Architecture {
  std::string_view name;  ///< its kernels' names start with it: "sm90"
  bool (*supports)(const Capability& gpu);
  std::span<const KernelEntry> kernels;
  /// The rows in one part, or in two (the second has none then).
  std::array<PlanPart, 2> (*choose)(const KernelProblem& problem);
  /// Why a kernel of the list cannot do the problem, or nothing.
  std::string (*why_impossible)(const KernelProblem& problem, const KernelConfig& kernel);
  int (*stage_k)(const KernelConfig& kernel);
  /// Blocks of the grid, stream-K blocks among them.
  std::int64_t (*grid)(const KernelProblem& problem, const KernelConfig& kernel);
  std::int64_t (*workspace_bytes)(const KernelProblem& problem, const KernelConfig& kernel);
  /// The order in which a sum is made: one sentence.
  std::string (*summation)(const KernelProblem& problem, const KernelConfig& kernel);
  /// Enqueues the product. Null in builds without its kernels.
  void (*launch)(const KernelPlan& plan, const FragmentGemmJob& job,
                 std::span<std::byte> workspace);
  /// Kernels that are worth measuring for a problem, the likely fastest first. Null: all that can
  /// do it.
  std::vector<KernelConfig> (*candidates)(const KernelProblem& problem) = nullptr;
  /// The same tile with other steps and stages. Null: there are none.
  std::vector<KernelConfig> (*variants)(const KernelProblem& problem,
                                        const KernelConfig& kernel) = nullptr;
  /// Why none of its kernels can do a problem, or nothing: another architecture is taken then.
  /// Null: one always can.
  std::string (*why_none)(const KernelProblem& problem) = nullptr;
  /// Microseconds that what it chooses takes on a GPU, by a model. Null: it is taken where it comes
  /// before the others.
  double (*time)(const KernelProblem& problem, const Capability& gpu) = nullptr;
  /// Memory for operands and sums as its kernels want them, beside the workspace: job.staging.
  /// Null: none.
  std::int64_t (*staging_bytes)(const KernelProblem& problem) = nullptr;
  /// x of W4A4 is multiplied as it is; else it is decoded first.
  bool reads_quantized_x = false;
  /// Taken where it is the only one that there is to choose from.
  bool only_by_name = false;
};

/// All that there are, in the order in which they are asked.
std::span<const Architecture* const> architectures();

}  // namespace nvfp4::cuda
