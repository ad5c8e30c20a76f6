#pragma once

#include <cstdint>

#include "backends/cuda/gemm/kernel_config.h"
#include "nvfp4/layout.h"

/// GEMMs of NVFP4 by NVFP4 by cuBLASLt, for compute capability 10.x, and the memory of their
/// operands.
namespace nvfp4::cuda::sm100 {

/// One entry, because the library chooses its own tiles. This tile is that of the layout of scales.
inline constexpr Kernel kKernels[] = {{MainloopKind::cublaslt, 128, 128, 1}};

inline constexpr std::int64_t kLibraryBytes = 32 << 20;  ///< NVIDIA's recommendation for such GPUs

/// Offsets of the operands: codes and scales of one group's weights, scales of x, factors, sums.
struct Staging {
  std::int64_t codes = 0, scales, x_scales, factors, sums, workspace, bytes;
};
constexpr Staging staging_of(std::int64_t m, std::int64_t n, std::int64_t k) {
  constexpr std::int64_t kAlign = 256;
  const auto tiled = [&](std::int64_t rows) {
    return round_up(Tiled128x4Scales::bytes(rows, k / 16), kAlign);
  };
  Staging s{};
  s.scales = round_up(n * k / 2, kAlign);
  s.x_scales = s.scales + tiled(n);
  s.factors = s.x_scales + tiled(m);
  s.sums = s.factors + kAlign;
  s.workspace = s.sums + round_up(m * n * 4, kAlign);
  s.bytes = s.workspace + kLibraryBytes;
  return s;
}

}  // namespace nvfp4::cuda::sm100
