#pragma once

#include <cstdint>

#include "backends/cuda/gemm/kernel_config.h"
#include "nvfp4/layout.h"

/// Products of NVFP4 by NVFP4 by cuBLASLt, for compute capability 10.x, and the memory of their
/// operands.
namespace nvfp4::cuda::sm100 {

/// One "kernel": the library has its own choice of tiles. Those here are of the layout of scales.
inline constexpr KernelEntry kKernels[] = {{MainloopKind::cublaslt, 128, 128, 1}};

inline constexpr std::int64_t kLibraryBytes = 32 << 20;  ///< as NVIDIA recommends for such GPUs

/// Where what the library reads and writes begins: the weights of one group, as codes and scales;
/// scales of x; factors; sums.
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
