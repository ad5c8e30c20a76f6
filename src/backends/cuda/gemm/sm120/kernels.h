#pragma once

#include "backends/cuda/gemm/sm80/kernels.h"

/// The kernels of NVFP4 by NVFP4 for compute capability 12.x, and what follows from a tile: the
/// blocks of sm80, with x as codes and scales. Host and device.
namespace nvfp4::cuda::sm120 {

using sm80::Warps;

/// Every kernel, once: by m, then n. Warps share the rows of W and the chunks of K, not the rows of
/// x: so each strip of W is put in order once in a block. Two blocks of 128 x 128, four warps with
/// 128 sums a thread each, play ping-pong: while one starts or ends its tile, the other multiplies.
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
/// Rows of x for which there is room: the instruction has eight, whatever is in the others.
constexpr int rows_of(const KernelConfig& t) { return std::max(8, t.m); }
constexpr int threads(const KernelConfig& t) {
  const Warps w = warps_of(t);
  return 32 * w.m * w.n * w.k;
}

/// Shared memory that a block can have on 12.x, and each of two on one multiprocessor of 100 KB, of
/// which every block takes 1 KB for itself.
constexpr int most_shared_bytes(const KernelConfig& t) {
  return warps_of(t).blocks == 1 ? 99 * 1024 : 49 * 1024;
}

inline constexpr int kRowBytes = kTileCols / 2;  ///< codes of a row of x of a chunk
/// Words of scales, four blocks each, of rows j, j + 8, j + 16 … of x lie side by side; between
/// those of j and j + 1 a gap, so that eight lanes read 16 bytes each of all banks.
constexpr int scale_stride(int m) { return m >= 64 ? m / 8 + 4 : std::max(2, m / 8); }
constexpr int x_part_bytes(const KernelConfig& t) {
  return rows_of(t) * kRowBytes + 8 * scale_stride(rows_of(t)) * 4;
}
constexpr int w_part_bytes(const KernelConfig& t) { return t.n / 16 * sm80::kStripBytes; }
constexpr int stage_bytes(const KernelConfig& t) {
  return warps_of(t).k * (x_part_bytes(t) + w_part_bytes(t));
}
constexpr int ring_bytes(const KernelConfig& t) { return warps_of(t).stages * stage_bytes(t); }

/// Rows of x whose sums are in shared memory at a time: as many as fit there beside the state.
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

/// Kernels that add up a row of out in the same order, whatever the number of rows of x.
constexpr bool is_batch_invariant(const KernelConfig& t) {
  return warps_of(t).k == 1 && t.split_k == 1;
}

}  // namespace nvfp4::cuda::sm120
