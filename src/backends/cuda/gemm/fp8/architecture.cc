#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "backends/cuda/gemm/fp8/fp8.h"
#ifdef NVFP4_WITH_CUDA
#include "backends/cuda/gemm/fp8/launch.h"
#endif

namespace nvfp4::cuda::fp8 {
namespace {

/// One entry, because the library chooses its own tiles.
constexpr Kernel kKernels[] = {{MainloopKind::cublaslt, 128, 128, 1}};

constexpr Kernel kMmaKernels[] = {{MainloopKind::mma, kMmaTile.m, kMmaTile.n}};

/// Operations and bytes in a microsecond, with some hundreds of rows; `start` in microseconds.
struct Rates {
  int major, minor;  ///< minor -1: any
  double exact, fp8, bytes, start;
};
/// 9.0: fitted to an H100. The others are estimates: NVIDIA's numbers of an L40S and an RTX 5090,
/// operations at 65 and 75 %, memory at 85 %.
constexpr Rates kRates[] = {{9, 0, 730e6, 1300e6, 2.6e6, 9.5},
                            {8, 9, 235e6, 550e6, 0.73e6, 12},
                            {12, -1, 136e6, 314e6, 1.5e6, 12}};

const Rates* rates_of(const Capability& gpu) {
  const auto* const found = std::ranges::find_if(kRates, [&](const Rates& r) {
    return r.major == gpu.major && (r.minor < 0 || r.minor == gpu.minor);
  });
  return found == std::end(kRates) ? nullptr : found;
}

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
    .staging_bytes =
        [](const KernelProblem& p) { return staging_of(p.m, p.n, p.k, kLibraryBytes).bytes; },
};

const Architecture kMmaArchitecture = [] {
  Architecture a = kArchitecture;
  a.kernels = kMmaKernels;
  a.choose = [](const KernelProblem& problem) {
    return std::array<PlanPart, 2>{{{problem.m, {.m = kMmaTile.m, .n = kMmaTile.n}}, {}}};
  };
  a.stage_k = [](const KernelConfig&) { return kMmaTile.k; };
  a.grid = [](const KernelProblem& p, const KernelConfig&) { return mma_blocks(p); };
  a.summation = [](const KernelProblem&, const KernelConfig&) -> std::string {
    return "E4M3 with a factor for each row, K in order by tensor cores";
  };
#ifdef NVFP4_WITH_CUDA
  a.launch = launch_mma;
#endif
  a.staging_bytes = [](const KernelProblem& p) { return staging_of(p.m, p.n, p.k).bytes; };
  return a;
}();

std::string why_unusable(const Capability& gpu) {
  if (rates_of(gpu) != nullptr) return "";
  return fmt::format(
      "needs a GPU of compute capability 8.9, 9.0 or 12.x, not {}.{}, which has no FP8 "
      "instructions or no FP8 kernels here",
      gpu.major, gpu.minor);
}

std::int64_t fewest_rows(std::int64_t n, std::int64_t k, const Capability& gpu) {
  const Rates& r = *rates_of(gpu);
  const double w = static_cast<double>(n) * static_cast<double>(k);
  // A call reads and writes 25/16 bytes for an element of W, 3 for an element of x.
  const double constant = r.start + w * (1 + 9.0 / 16) / r.bytes;
  const double of_row = 2 * w / r.exact - 3 * static_cast<double>(k) / r.bytes;
  constexpr std::int64_t kMost = 1 << 30;
  if (r.major == 9) {
    const double saved = of_row - 2 * w / r.fp8;
    return saved <= constant / kMost ? kMost
                                     : static_cast<std::int64_t>(std::ceil(constant / saved));
  }
  // Tiles take whole rounds of the multiprocessors. Those of the exact kernels can be smaller, so
  // their rounds are not counted.
  const std::int64_t across = ceil_div(n, kMmaTile.n), blocks = std::max(1, gpu.multiprocessors);
  const double round =
      2.0 * kMmaTile.m * kMmaTile.n * static_cast<double>(k) * static_cast<double>(blocks) / r.fp8;
  constexpr std::int64_t kMostTiles = 1 << 13;  // of about a million rows
  for (std::int64_t tiles = 1; of_row > 0 && tiles <= kMostTiles; ++tiles) {
    const auto rounds = static_cast<double>(ceil_div(tiles * across, blocks));
    const double rows = std::ceil((constant + rounds * round) / of_row);
    if (rows <= static_cast<double>(tiles * kMmaTile.m))
      return std::max(static_cast<std::int64_t>(rows), (tiles - 1) * kMmaTile.m + 1);
  }
  return kMost;
}

}  // namespace nvfp4::cuda::fp8
