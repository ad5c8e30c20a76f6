#pragma once

#include <array>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "backends/cuda/gemm/kernel_config.h"
#include "backends/cuda/gemm/problem.h"
#include "backends/cuda/gemm_job.h"

/// The interface of a GPU architecture for GEMM. An architecture is a folder beside this file and a
/// line in architectures.cc.
namespace nvfp4::cuda {

struct KernelPlan;

/// A range of rows of x and the kernel that multiplies it. Parts follow each other.
struct PlanPart {
  std::int64_t rows = 0;
  KernelConfig kernel = {};
};

struct Architecture {
  std::string_view name;  ///< The prefix of its kernels' names, such as "sm90".
  bool (*supports)(const Capability& gpu);
  std::span<const Kernel> kernels;
  /// Returns one or two parts that cover all rows. With one part, the second has 0 rows.
  std::array<PlanPart, 2> (*choose)(const KernelProblem& problem);
  /// Returns why a listed kernel cannot compute the problem, or an empty string.
  std::string (*why_impossible)(const KernelProblem& problem, const KernelConfig& kernel);
  int (*stage_k)(const KernelConfig& kernel);
  /// Returns the number of thread blocks, including stream-K blocks.
  std::int64_t (*grid)(const KernelProblem& problem, const KernelConfig& kernel);
  std::int64_t (*workspace_bytes)(const KernelProblem& problem, const KernelConfig& kernel);
  /// Returns one sentence about the order of summation.
  std::string (*summation)(const KernelProblem& problem, const KernelConfig& kernel);
  /// Enqueues the GEMM. Null in builds without these kernels.
  void (*launch)(const KernelPlan& plan, const FragmentGemmJob& job,
                 std::span<std::byte> workspace);
  /// Returns the kernels that are worth measuring, the likely fastest first. Null: measure all that
  /// are possible.
  std::vector<KernelConfig> (*candidates)(const KernelProblem& problem) = nullptr;
  /// Returns kernels with the same tile and other steps and stages. Null: there are none.
  std::vector<KernelConfig> (*variants)(const KernelProblem& problem,
                                        const KernelConfig& kernel) = nullptr;
  /// Returns why no kernel can compute the problem, or an empty string. Another architecture is
  /// used then. Null: one always can.
  std::string (*why_none)(const KernelProblem& problem) = nullptr;
  /// Returns the modelled time of the chosen kernel in microseconds. Null: the order of
  /// architectures() decides.
  double (*time)(const KernelProblem& problem, const Capability& gpu) = nullptr;
  /// Returns the bytes for operands and sums in the kernels' own layout: job.staging. The workspace
  /// is not included. Null: 0.
  std::int64_t (*staging_bytes)(const KernelProblem& problem) = nullptr;
  /// True if the kernels multiply a quantized x (W4A4); otherwise x is dequantized first.
  bool reads_quantized_x = false;
};

/// Returns every architecture. The order is the order of preference.
std::span<const Architecture* const> architectures();
/// Sets an architecture that follows the others; null removes it. For tests, before any plan is
/// made.
void set_last_architecture(const Architecture* architecture);

}  // namespace nvfp4::cuda
