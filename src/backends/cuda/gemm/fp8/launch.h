#pragma once

#include <span>

#include "backends/cuda/gemm/plan.h"
#include "backends/cuda/gemm/sm100/cublaslt.h"

namespace nvfp4::cuda::fp8 {

/// Returns a GEMM of the library for dense operands. Its pointers are aligned but do not point to
/// operands: launch() replaces them, and cublaslt::is_supported() reads none.
cublaslt::Product product_of(std::int64_t m, std::int64_t n, std::int64_t k, DType out);

/// Enqueues the kernels that stage x and W, and the GEMM of the library or by mma.sync: see
/// Architecture::launch.
void launch(const KernelPlan& plan, const FragmentGemmJob& job, std::span<std::byte> workspace);
void launch_mma(const KernelPlan& plan, const FragmentGemmJob& job, std::span<std::byte> workspace);

}  // namespace nvfp4::cuda::fp8
