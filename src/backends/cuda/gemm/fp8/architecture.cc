#include <fmt/format.h>

#include <cmath>

#include "backends/cuda/gemm/fp8/fp8.h"
#ifdef NVFP4_WITH_CUDA
#include "backends/cuda/gemm/fp8/launch.h"
#endif

namespace nvfp4::cuda::fp8 {
namespace {

/// One entry, because the library chooses its own tiles.
constexpr Kernel kKernels[] = {{MainloopKind::cublaslt, 128, 128, 1}};

}  // namespace

const Architecture kArchitecture{
    .name = "fp8",
    .supports = [](const Capability& gpu) { return why_unusable(gpu).empty(); },
    .kernels = kKernels,
    .choose =
        [](const KernelProblem& problem) {
          return std::array<PlanPart, 2>{{{problem.m, {.m = 128, .n = 128}}, {}}};
        },
    .why_impossible = [](const KernelProblem&, const KernelConfig&) { return std::string(); },
    .stage_k = [](const KernelConfig&) { return 128; },
    .grid = [](const KernelProblem&, const KernelConfig&) { return std::int64_t{1}; },
    .workspace_bytes = [](const KernelProblem&, const KernelConfig&) { return std::int64_t{0}; },
    .summation =
        [](const KernelProblem&, const KernelConfig&) {
          return std::string("E4M3 with a factor for each row, as cuBLASLt adds up") +
                 (kFastAccumulation ? " with fast accumulation" : "");
        },
#ifdef NVFP4_WITH_CUDA
    .launch = launch,
#else
    .launch = nullptr,
#endif
    .staging_bytes = [](const KernelProblem& p) { return staging_of(p.m, p.n, p.k).bytes; },
};

std::string why_unusable(const Capability& gpu) {
  if (gpu.major == 9 && gpu.minor == 0) return "";
  return fmt::format(
      "needs a GPU of compute capability 9.0, not {}.{}, which has no FP8 instructions or, in "
      "cuBLASLt, no factors of rows",
      gpu.major, gpu.minor);
}

std::int64_t fewest_rows(std::int64_t n, std::int64_t k) {
  // Fitted to an H100, in µs: TFLOP/s in BF16 and in FP8 with some hundreds of rows, and the bytes
  // that a call reads and writes: 25/16 for an element of W, 3 for an element of x.
  constexpr double kExact = 730e6, kFp8 = 1300e6, kBytes = 2.6e6, kStart = 9.5;
  const double w = static_cast<double>(n) * static_cast<double>(k);
  const double constant = kStart + w * (1 + 9.0 / 16) / kBytes;
  const double saved = 2 * w * (1 / kExact - 1 / kFp8) - 3 * static_cast<double>(k) / kBytes;
  constexpr double kMost = 1 << 30;
  return static_cast<std::int64_t>(saved <= constant / kMost ? kMost : std::ceil(constant / saved));
}

}  // namespace nvfp4::cuda::fp8
