#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "backends/cuda/gemm/architecture.h"

/// Problem and capability -> kernels: pure functions, tested without a GPU.
namespace nvfp4::cuda {

/// What is launched for a problem, one part after the other.
struct KernelPlan {
  const Architecture* architecture = nullptr;
  KernelProblem problem;
  std::array<PlanPart, 2> parts = {};
  /// Flags first, then sums. The flags must be zero before the first product uses a workspace;
  /// every product leaves them so. One after the other may use it, not two at once.
  std::int64_t workspace_bytes = 0;
};

/// Throws UnsupportedError if no architecture has kernels for the capability.
const Architecture& find_architecture(const Capability& capability,
                                      std::span<const Architecture* const> among = architectures());
/// Of those that have kernels for the problem, too, the first, or one whose model expects less time
/// than that of the first: not with batch_invariant, as the choice would depend on the rows.
const Architecture& find_architecture(const KernelProblem& problem, const Capability& capability,
                                      std::span<const Architecture* const> among);

/// All, or the one of a name; "" is none. Throws ValueError.
std::span<const Architecture* const> architectures_named(std::string_view name);

/// A plan with the kernels that a cost model takes for the fastest. With `stream_k`, it may need a
/// workspace.
KernelPlan plan_gemm(const KernelProblem& problem, const Capability& capability,
                     bool stream_k = false,
                     std::span<const Architecture* const> among = architectures());
/// The same with one kernel of the caller's choice. Throws ValueError with the rule it breaks.
KernelPlan plan_gemm(const KernelProblem& problem, const Capability& capability,
                     const KernelConfig& kernel,
                     std::span<const Architecture* const> among = architectures());

/// Its entry in the list, or null.
const KernelEntry* find_kernel(std::span<const KernelEntry> kernels, const KernelConfig& kernel);
/// Every tile and split of the list, in its order.
std::vector<KernelConfig> kernel_configs(std::span<const KernelEntry> kernels);

/// The names of all kernels, of every architecture that supports the GPU and may be chosen.
std::vector<std::string> kernel_names(const Capability& capability,
                                      std::span<const Architecture* const> among);
/// "sm90_wgmma_m64n128k128", and what differs from the default: "_splitk2_dependents9_prefetch2_
/// streamk5".
std::string kernel_name(const KernelConfig& kernel, const Architecture& architecture);
std::string kernel_name(const KernelConfig& kernel);  ///< of the first architecture that has it
/// The kernel of a name. Throws ValueError if there is none.
KernelConfig kernel_config(std::string_view name,
                           std::span<const Architecture* const> among = architectures());

/// The architecture whose name a kernel's starts with. Throws ValueError if there is none.
const Architecture& architecture_of(std::string_view kernel,
                                    std::span<const Architecture* const> among = architectures());

/// A line for each part: rows, kernel, grid and the order of its sums; then the workspace.
std::string describe(const KernelPlan& plan);

}  // namespace nvfp4::cuda
