#pragma once

#include <algorithm>
#include <cstdint>

#include "backends/cuda/gemm/fragment_layout.h"
#include "backends/cuda/gemm/kernel_config.h"
#include "backends/cuda/gemm/m_shapes.h"
#include "nvfp4/layout.h"

/// The kernels of every GPU since sm_80, by mma.sync and cp.async, and the properties of a tile.
/// Host and device.
namespace nvfp4::cuda::sm80 {

/// The division of a tile among the warps of a block.
struct Warps {
  int m, n;    ///< parts of the rows of x, and of the rows of W
  int k;       ///< parts of K: interleaved chunks, added at the end
  int stages;  ///< pipeline stages; each has a chunk of 64 columns for each part of K
  int blocks;  ///< blocks on a multiprocessor for which registers must suffice
};

/// Every kernel once, ordered by m, then n. The tile scheduler needs at least 256 threads. Shared
/// memory is at most 99 KB, the limit of sm_86, sm_89 and sm_120.
inline constexpr int kSplits = 1 | 2 | 4 | 8;
inline constexpr KernelEntry kKernels[] = {
    {MainloopKind::routed, 1, 32, 1},        {MainloopKind::routed, 1, 64, 1},
    {MainloopKind::mma, 2, 16, 1},           {MainloopKind::mma, 2, 32, 1},
    {MainloopKind::mma, 2, 64, 1 | 2 | 4},   {MainloopKind::mma, 8, 16, 1},
    {MainloopKind::mma, 8, 32, 1 | 2},       {MainloopKind::mma, 8, 64, 1 | 2 | 4},
    {MainloopKind::mma, 8, 128, kSplits},    {MainloopKind::mma, 16, 32, 1 | 2},
    {MainloopKind::mma, 16, 64, 1 | 2 | 4},  {MainloopKind::mma, 16, 128, kSplits},
    {MainloopKind::mma, 32, 64, 1 | 2 | 4},  {MainloopKind::mma, 32, 128, kSplits},
    {MainloopKind::mma, 32, 256, kSplits},   {MainloopKind::mma, 64, 64, 1 | 2 | 4},
    {MainloopKind::mma, 64, 128, kSplits},   {MainloopKind::mma, 64, 256, kSplits},
    {MainloopKind::mma, 128, 64, 1 | 2 | 4}, {MainloopKind::mma, 128, 128, 1 | 2 | 4},
    {MainloopKind::mma, 128, 256, kSplits},  {MainloopKind::mma, 256, 128, 1 | 2 | 4},
};
inline constexpr Warps kWarps[] = {
    {1, 1, 16, 4, 1}, {1, 1, 8, 4, 2},                                     // m = 1
    {1, 1, 16, 7, 2}, {1, 1, 16, 4, 1}, {1, 1, 8, 4, 2},                   // m = 2
    {1, 1, 16, 3, 1}, {1, 1, 8, 5, 2},  {1, 2, 4, 7, 2}, {1, 2, 4, 4, 2},  // m = 8
    {1, 1, 8, 3, 2},  {1, 2, 4, 5, 2},  {1, 4, 2, 6, 2},                   // m = 16
    {1, 4, 2, 7, 2},  {1, 8, 1, 10, 2}, {1, 8, 1, 6, 2},                   // m = 32
    {1, 4, 2, 4, 2},  {1, 4, 2, 3, 2},  {1, 8, 1, 8, 1},                   // m = 64
    {2, 4, 1, 4, 2},  {2, 4, 1, 3, 2},  {1, 8, 1, 5, 1},                   // m = 128
    {2, 4, 1, 2, 1},                                                       // m = 256
};
static_assert(std::size(kWarps) == std::size(kKernels));

/// Returns the index of a tile in a list, or -1.
template <std::size_t kCount>
constexpr int index_in(const KernelEntry (&kernels)[kCount], const KernelConfig& t) {
  for (std::size_t i = 0; i < kCount; ++i)
    if (kernels[i].m == t.m && kernels[i].n == t.n) return static_cast<int>(i);
  return -1;
}
template <std::size_t kCount>
constexpr bool is_routed_in(const KernelEntry (&kernels)[kCount], const KernelConfig& t) {
  const int i = index_in(kernels, t);
  return i >= 0 && kernels[i].mainloop == MainloopKind::routed;
}

constexpr int index_of(const KernelConfig& t) { return index_in(kKernels, t); }
constexpr bool is_routed(const KernelConfig& t) { return is_routed_in(kKernels, t); }
constexpr Warps warps_of(const KernelConfig& t) { return kWarps[index_of(t)]; }

inline constexpr int kStripBytes = kTileBytes / 4;  ///< codes and scales of 16 rows of a chunk

constexpr int threads(const KernelConfig& t) {
  const Warps w = warps_of(t);
  return 32 * w.m * w.n * w.k;
}
/// Reports whether warps load W from global memory to registers: those with two strips and at least
/// 64 rows of x. They dequantize the next chunk while they multiply.
constexpr bool is_direct(const KernelConfig& t) {
  const Warps w = warps_of(t);
  return w.k == 1 && t.n / 16 / w.n == 2 && t.m / w.m >= 64 && w.blocks == 1;
}
constexpr int x_stage_bytes(const KernelConfig& t) { return warps_of(t).k * t.m * kTileCols * 2; }
constexpr int w_stage_bytes(const KernelConfig& t) {
  return is_direct(t) ? 0 : warps_of(t).k * (t.n / 16) * kStripBytes;
}
constexpr int ring_bytes(const KernelConfig& t) {
  return warps_of(t).stages * (x_stage_bytes(t) + w_stage_bytes(t));
}
/// Returns the row stride, in floats, of the sums in shared memory. The stride avoids bank
/// conflicts.
constexpr int sum_stride(const KernelConfig& t) { return t.n + 4; }
/// Returns the rows of x whose sums are in shared memory at a time: a warp's rows, or as many as
/// fit.
constexpr int slab_rows(const KernelConfig& t) {
  int rows = t.m / warps_of(t).m;
  while (warps_of(t).k * rows * sum_stride(t) * 4 > 90 * 1024) rows /= 2;
  return rows;
}
constexpr int slab_bytes(const KernelConfig& t) {
  return warps_of(t).k * slab_rows(t) * sum_stride(t) * 4;
}
constexpr int state_offset(const KernelConfig& t) {
  return static_cast<int>(round_up(std::max(ring_bytes(t), slab_bytes(t)), 16));
}

/// Reports whether the epilogue's factors are copied to shared memory at the start. The copies
/// serve tiles of few rows, which would otherwise wait at the end.
constexpr bool brings_factors(const KernelConfig& t) { return t.n + t.m < threads(t); }

/// Reports whether a row of out is summed in the same order for every number of rows of x.
constexpr bool is_batch_invariant(const KernelConfig& t) {
  return warps_of(t).k == 1 && t.split_k == 1;
}

/// Sizes of the workspace of blocks that share K. It starts with a counter for each tile, which
/// every GEMM resets to zero. Sums follow; the last block of a tile adds them up.
inline constexpr int kMostSplitTiles = 1024;
inline constexpr std::int64_t kCounterBytes = kMostSplitTiles * 4;

}  // namespace nvfp4::cuda::sm80
