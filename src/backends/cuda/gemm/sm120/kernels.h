#pragma once

#include "backends/cuda/gemm/sm80/kernels.h"

/// The kernels of NVFP4 by NVFP4 for compute capability 12.x and the properties of a tile. They use
/// the blocks of sm80, with x as codes and scales. Host and device.
namespace nvfp4::cuda::sm120 {

/// Every kernel once, ordered by m, then n. Warps divide the rows of W and the chunks of K, not the
/// rows of x, so a block reorders each strip of W once. Two blocks of 128 x 128 (four warps, 128
/// sums in a thread) alternate: one starts or ends its tile while the other multiplies.
// clang-format off
inline constexpr Kernel kKernels[] = {
    {.mainloop = MainloopKind::routed, .m = 1, .n = 64, .warps = {1, 4, 2}, .stages = 8, .blocks = 2},
    {.mainloop = MainloopKind::mma, .m = 8, .n = 64, .split_k = 1 | 2 | 4, .warps = {1, 4, 2}, .stages = 8, .blocks = 2},
    {.mainloop = MainloopKind::mma, .m = 16, .n = 64, .split_k = 1 | 2 | 4, .warps = {1, 4, 2}, .stages = 7, .blocks = 2},
    {.mainloop = MainloopKind::mma, .m = 32, .n = 128, .split_k = 1 | 2 | 4, .warps = {1, 8, 1}, .stages = 7, .blocks = 2},
    {.mainloop = MainloopKind::mma, .m = 64, .n = 128, .split_k = 1 | 2 | 4, .warps = {1, 8, 1}, .stages = 6, .blocks = 2},
    {.mainloop = MainloopKind::mma, .m = 128, .n = 128, .split_k = 1 | 2 | 4, .warps = {1, 4, 1}, .stages = 4, .blocks = 2},
    {.mainloop = MainloopKind::mma, .m = 128, .n = 256, .split_k = 1 | 2, .warps = {1, 8, 1}, .stages = 6, .blocks = 1},
    {.mainloop = MainloopKind::mma, .m = 256, .n = 128, .split_k = 1 | 2, .warps = {1, 8, 1}, .stages = 6, .blocks = 1},
};
// clang-format on
static_assert(are_distinct(kKernels), "two kernels have the same tile and split");

/// Returns the kernel with this tile. Every tile has a kernel without split-K.
constexpr const Kernel& kernel_of(const KernelConfig& t) {
  return *find_kernel(kKernels, {t.m, t.n});
}
constexpr bool is_routed(const KernelConfig& t) {
  return kernel_of(t).mainloop == MainloopKind::routed;
}
/// Returns the columns of a stage.
constexpr int stage_k(const KernelConfig& t) { return kernel_of(t).warps.k * kTileCols; }
/// Returns the rows of x of a stage. The instruction has eight; surplus rows may have any content.
constexpr int rows_of(const KernelConfig& t) { return std::max(8, t.m); }
/// Returns the shared memory of a block on 12.x. If two blocks share a multiprocessor of 100 KB,
/// each takes 1 KB for the system.
constexpr int most_shared_bytes(const KernelConfig& t) {
  return kernel_of(t).blocks == 1 ? 99 * 1024 : 49 * 1024;
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
  return kernel_of(t).warps.k * (x_part_bytes(t) + w_part_bytes(t));
}
constexpr int ring_bytes(const KernelConfig& t) { return kernel_of(t).stages * stage_bytes(t); }

/// Returns the rows of x whose sums are in shared memory at a time: as many as fit beside the
/// state.
constexpr int slab_rows(const KernelConfig& t) {
  int rows = rows_of(t);
  while (kernel_of(t).warps.k * rows * sm80::sum_stride(t) * 4 > most_shared_bytes(t) - 9 * 1024)
    rows /= 2;
  return rows;
}
constexpr int state_offset(const KernelConfig& t) {
  const int slab_bytes = kernel_of(t).warps.k * slab_rows(t) * sm80::sum_stride(t) * 4;
  return static_cast<int>(round_up(std::max(ring_bytes(t), slab_bytes), 16));
}

}  // namespace nvfp4::cuda::sm120
