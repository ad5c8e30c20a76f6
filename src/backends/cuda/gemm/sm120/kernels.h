#pragma once

#include "backends/cuda/gemm/sm80/kernels.h"

/// The kernels of NVFP4 by NVFP4 for compute capability 12.x and the properties of a tile. They use
/// the blocks of sm80, with x as codes and scales. Host and device.
namespace nvfp4::cuda::sm120 {

using sm80::Warps;

/// Every kernel once, ordered by m, then n. Warps divide the rows of W and the chunks of K, not the
/// rows of x, so a block reorders each strip of W once. Two blocks of 128 x 128 (four warps, 128
/// sums in a thread) alternate: one starts or ends its tile while the other multiplies.
inline constexpr KernelEntry kKernels[] = {
    {MainloopKind::routed, 1, 64, 1},        {MainloopKind::mma, 8, 64, 1 | 2 | 4},
    {MainloopKind::mma, 16, 64, 1 | 2 | 4},  {MainloopKind::mma, 32, 128, 1 | 2 | 4},
    {MainloopKind::mma, 64, 128, 1 | 2 | 4}, {MainloopKind::mma, 128, 128, 1 | 2 | 4},
    {MainloopKind::mma, 128, 256, 1 | 2},    {MainloopKind::mma, 256, 128, 1 | 2},
};
inline constexpr Warps kWarps[] = {
    {1, 4, 2, 8, 2}, {1, 4, 2, 8, 2}, {1, 4, 2, 7, 2}, {1, 8, 1, 7, 2},
    {1, 8, 1, 6, 2}, {1, 4, 1, 4, 2}, {1, 8, 1, 6, 1}, {1, 8, 1, 6, 1},
};
static_assert(std::size(kWarps) == std::size(kKernels));

constexpr int index_of(const KernelConfig& t) { return sm80::index_in(kKernels, t); }
constexpr bool is_routed(const KernelConfig& t) { return sm80::is_routed_in(kKernels, t); }
constexpr Warps warps_of(const KernelConfig& t) { return kWarps[index_of(t)]; }
/// Returns the rows of x of a stage. The instruction has eight; surplus rows may have any content.
constexpr int rows_of(const KernelConfig& t) { return std::max(8, t.m); }
constexpr int threads(const KernelConfig& t) {
  const Warps w = warps_of(t);
  return 32 * w.m * w.n * w.k;
}

/// Returns the shared memory of a block on 12.x. If two blocks share a multiprocessor of 100 KB,
/// each takes 1 KB for the system.
constexpr int most_shared_bytes(const KernelConfig& t) {
  return warps_of(t).blocks == 1 ? 99 * 1024 : 49 * 1024;
}

inline constexpr int kRowBytes = kTileCols / 2;  ///< bytes of codes of a row of x in a chunk
/// Returns the stride between the scales of rows j and j + 1 of x, in words of four scales. Words
/// of rows j, j + 8, j + 16 … are adjacent. The padding lets eight lanes read 16 bytes each without
/// bank conflicts.
constexpr int scale_stride(int m) { return m >= 64 ? m / 8 + 4 : std::max(2, m / 8); }
constexpr int x_part_bytes(const KernelConfig& t) {
  return rows_of(t) * kRowBytes + 8 * scale_stride(rows_of(t)) * 4;
}
constexpr int w_part_bytes(const KernelConfig& t) { return t.n / 16 * sm80::kStripBytes; }
constexpr int stage_bytes(const KernelConfig& t) {
  return warps_of(t).k * (x_part_bytes(t) + w_part_bytes(t));
}
constexpr int ring_bytes(const KernelConfig& t) { return warps_of(t).stages * stage_bytes(t); }

/// Returns the rows of x whose sums are in shared memory at a time: as many as fit beside the
/// state.
constexpr int slab_rows(const KernelConfig& t) {
  int rows = rows_of(t);
  while (warps_of(t).k * rows * sm80::sum_stride(t) * 4 > most_shared_bytes(t) - 9 * 1024)
    rows /= 2;
  return rows;
}
constexpr int state_offset(const KernelConfig& t) {
  const int slab_bytes = warps_of(t).k * slab_rows(t) * sm80::sum_stride(t) * 4;
  return static_cast<int>(round_up(std::max(ring_bytes(t), slab_bytes), 16));
}
constexpr bool brings_factors(const KernelConfig& t) { return t.n + t.m < threads(t); }

/// Reports whether a row of out is summed in the same order for every number of rows of x.
constexpr bool is_batch_invariant(const KernelConfig& t) {
  return warps_of(t).k == 1 && t.split_k == 1;
}

}  // namespace nvfp4::cuda::sm120
