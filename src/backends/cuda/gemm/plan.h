#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "backends/cuda/gemm/architecture.h"

/// Chooses kernels for a problem and a capability. The functions are pure and tested without a GPU.
namespace nvfp4::cuda {

/// The kernels of a problem. Parts are launched one after the other.
struct KernelPlan {
  const Architecture* architecture = nullptr;
  KernelProblem problem;
  std::array<PlanPart, 2> parts = {};
  /// Flags first, then sums. The flags must be zero before the first GEMM uses a workspace; every
  /// GEMM resets them to zero. GEMMs that share a workspace must not run concurrently.
  std::int64_t workspace_bytes = 0;
};

/// Returns the first architecture with kernels for the capability. Throws UnsupportedError if there
/// is none.
const Architecture& find_architecture(const Capability& capability,
                                      std::span<const Architecture* const> among = architectures());
/// Returns the first architecture that can compute the problem, or a later one with a lower
/// modelled time. With batch_invariant it returns the first, because modelled times depend on M.
const Architecture& find_architecture(const KernelProblem& problem, const Capability& capability,
                                      std::span<const Architecture* const> among);

/// Returns the architecture with this name, or all if the name is empty. Throws ValueError for an
/// unknown name.
std::span<const Architecture* const> architectures_named(std::string_view name);

/// Returns a plan with the fastest kernels according to a cost model. With `stream_k` the plan may
/// need a workspace.
KernelPlan plan_kernels(const KernelProblem& problem, const Capability& capability,
                        bool stream_k = false,
                        std::span<const Architecture* const> among = architectures());
/// Returns a plan with the caller's kernel. Throws ValueError with the rule that the kernel
/// violates.
KernelPlan plan_kernels(const KernelProblem& problem, const Capability& capability,
                        const KernelConfig& kernel,
                        std::span<const Architecture* const> among = architectures());

/// Returns the offset of staged operands in a call's workspace. Flags and sums are before them.
std::int64_t staging_offset(const KernelPlan& plan);
/// Returns the size of a call's workspace: flags, sums and staged operands. The operands are those
/// of Architecture::staging_bytes, otherwise `dequantized_x_bytes` of x in BF16.
std::int64_t call_workspace_bytes(const KernelPlan& plan, std::int64_t dequantized_x_bytes = 0);

/// Returns every tile and split of the list, in order.
std::vector<KernelConfig> kernel_configs(std::span<const Kernel> kernels);

/// Returns the names of all kernels of architectures that support the GPU and may be chosen.
std::vector<std::string> kernel_names(const Capability& capability,
                                      std::span<const Architecture* const> among);
/// Returns the kernel's name, such as "sm90_wgmma_m64n128k128". Fields that differ from their
/// defaults follow: "_splitk2_dependents9_prefetch2_streamk5".
std::string kernel_name(const KernelConfig& kernel, const Architecture& architecture);
std::string kernel_name(const KernelConfig& kernel);  ///< uses the first with it
/// Returns the kernel with this name. Throws ValueError if there is none.
KernelConfig kernel_config(std::string_view name,
                           std::span<const Architecture* const> among = architectures());

/// Returns the architecture of a kernel name. Throws ValueError if there is none.
const Architecture& architecture_of(std::string_view kernel,
                                    std::span<const Architecture* const> among = architectures());

/// Returns a line for each part (rows, kernel, grid, order of summation), then the workspace.
std::string describe(const KernelPlan& plan);

}  // namespace nvfp4::cuda
