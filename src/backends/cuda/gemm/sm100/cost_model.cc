#include "backends/cuda/gemm/sm100/cost_model.h"

#include <fmt/format.h>

#include <algorithm>

namespace nvfp4::cuda::sm100 {

std::string why_not(const KernelProblem& p) {
  if (!p.quantized_x) return "are for NVFP4 by NVFP4 (W4A4)";
  if (p.grouped || p.routed) return "are for dense GEMMs, not for grouped and routed ones";
  if (p.swiglu) return "are for GEMMs without SwiGLU";
  if (p.batch_invariant) return "are not batch-invariant";
  if (p.k % 32 != 0) return fmt::format("are for K that is a multiple of 32, not {}", p.k);
  if (p.n % 16 != 0) return fmt::format("are for N that is a multiple of 16, not {}", p.n);
  return "";
}

double estimated_time(const KernelProblem& p) {
  // A B200's FP4 at 60 % of 9 PFLOP/s and memory at 85 % of 8 TB/s, plus a launch for each of four
  // kernels of a group.
  const double of_gpu = std::max(1, p.multiprocessors) / 148.0;
  const double operations = 5.4e9 * of_gpu, bytes = 6.8e6 * of_gpu;
  constexpr double kStart = 2.5, kKernels = 4;
  const double m = static_cast<double>(p.m), n = static_cast<double>(p.n),
               k = static_cast<double>(p.k);
  // The weights are read, written in the library's order and read again. So are sums that our own
  // kernel finishes.
  const double moved = 3 * n * k * 9 / 16 + m * k * 9 / 16 + m * n * (4 + 4 + 2);
  return static_cast<double>(p.groups) *
         (kStart * kKernels + 2 * m * n * k / operations + moved / bytes);
}

}  // namespace nvfp4::cuda::sm100
