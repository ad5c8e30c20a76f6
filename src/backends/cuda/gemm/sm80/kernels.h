#pragma once

#include <algorithm>
#include <cstdint>

#include "backends/cuda/gemm/fragment_layout.h"
#include "backends/cuda/gemm/kernel_config.h"
#include "nvfp4/layout.h"

/// The kernels of every GPU since sm_80, by mma.sync and cp.async, and the properties of a tile.
/// Host and device.
namespace nvfp4::cuda::sm80 {

/// Every kernel once, ordered by m, then n. The tile scheduler needs at least 256 threads. Shared
/// memory is at most 99 KB, the limit of sm_86, sm_89 and sm_120. Costs are fitted to 6 shapes and
/// 1 to 4096 rows: the mean error is 5 %, and the chosen kernel takes 1.5 % more time than the
/// fastest. Those for m = 1 are copies of m = 2.
// clang-format off
inline constexpr int kSplits = 1 | 2 | 4 | 8;
inline constexpr Kernel kKernels[] = {
    {.mainloop = MainloopKind::routed, .m = 1, .n = 32, .warps = {1, 1, 16}, .stages = 4, .blocks = 1,
     .costs = {{.start = 0.08684, .round = 1.77, .step = 0.5351}}},
    {.mainloop = MainloopKind::routed, .m = 1, .n = 64, .warps = {1, 1, 8}, .stages = 4, .blocks = 2,
     .costs = {{.start = 0.7464, .round = 0.8982, .step = 0.4406, .stage = 0.08374, .split = 1.128, .split_element = 17.5}}},
    {.mainloop = MainloopKind::mma, .m = 2, .n = 16, .warps = {1, 1, 16}, .stages = 7, .blocks = 2,
     .costs = {{.start = 0.852, .round = 1.072, .step = 0.3668}}},
    {.mainloop = MainloopKind::mma, .m = 2, .n = 32, .warps = {1, 1, 16}, .stages = 4, .blocks = 1,
     .costs = {{.start = 0.08684, .round = 1.77, .step = 0.5351}}},
    {.mainloop = MainloopKind::mma, .m = 2, .n = 64, .split_k = 1 | 2 | 4, .warps = {1, 1, 8}, .stages = 4, .blocks = 2,
     .costs = {{.start = 0.7464, .round = 0.8982, .step = 0.4406, .stage = 0.08374, .split = 1.128, .split_element = 17.5}}},
    {.mainloop = MainloopKind::mma, .m = 8, .n = 16, .warps = {1, 1, 16}, .stages = 3, .blocks = 1,
     .costs = {{.start = 0.2561, .round = 1.554, .step = 0.3669}}},
    {.mainloop = MainloopKind::mma, .m = 8, .n = 32, .split_k = 1 | 2, .warps = {1, 1, 8}, .stages = 5, .blocks = 2,
     .costs = {{.start = 0.2205, .round = 0.9304, .step = 0.2598, .stage = 0.07149, .split = 1.053, .split_element = 11.24}}},
    {.mainloop = MainloopKind::mma, .m = 8, .n = 64, .split_k = 1 | 2 | 4, .warps = {1, 2, 4}, .stages = 7, .blocks = 2,
     .costs = {{.start = 0.5983, .round = 0.8297, .step = 0.2583, .stage = 0.04884, .split = 0.9626, .split_element = 6.796}}},
    {.mainloop = MainloopKind::mma, .m = 8, .n = 128, .split_k = kSplits, .warps = {1, 2, 4}, .stages = 4, .blocks = 2,
     .costs = {{.start = 0.6868, .round = 0.6009, .step = 0.4701, .stage = 0.05651, .split = 1.14, .split_element = 5.548}}},
    {.mainloop = MainloopKind::mma, .m = 16, .n = 32, .split_k = 1 | 2, .warps = {1, 1, 8}, .stages = 3, .blocks = 2,
     .costs = {{.start = 0, .round = 0.8031, .step = 0.3225, .stage = 0.09141, .split = 1.247, .split_element = 6.042}}},
    {.mainloop = MainloopKind::mma, .m = 16, .n = 64, .split_k = 1 | 2 | 4, .warps = {1, 2, 4}, .stages = 5, .blocks = 2,
     .costs = {{.start = 0.7561, .round = 0.6973, .step = 0.334, .stage = 0.03842, .split = 0.7805, .split_element = 3.99}}},
    {.mainloop = MainloopKind::mma, .m = 16, .n = 128, .split_k = kSplits, .warps = {1, 4, 2}, .stages = 6, .blocks = 2,
     .costs = {{.start = 0.697, .round = 0.6211, .step = 0.3153, .stage = 0.07101, .split = 0.9776, .split_element = 3.763}}},
    {.mainloop = MainloopKind::mma, .m = 32, .n = 64, .split_k = 1 | 2 | 4, .warps = {1, 4, 2}, .stages = 7, .blocks = 2,
     .costs = {{.start = 0.6411, .round = 0.7652, .step = 0.2496, .stage = 0.05858, .split = 0.391, .split_element = 3.075}}},
    {.mainloop = MainloopKind::mma, .m = 32, .n = 128, .split_k = kSplits, .warps = {1, 8, 1}, .stages = 10, .blocks = 2,
     .costs = {{.start = 0.2149, .round = 0.8327, .step = 0.2477, .stage = 0.0688, .split = 1.41, .split_element = 2.452}}},
    {.mainloop = MainloopKind::mma, .m = 32, .n = 256, .split_k = kSplits, .warps = {1, 8, 1}, .stages = 6, .blocks = 2,
     .costs = {{.start = 1.766, .round = 0.4693, .step = 0.4473, .stage = 0.08741, .split = 2.442, .split_element = 2.135}}},
    {.mainloop = MainloopKind::mma, .m = 64, .n = 64, .split_k = 1 | 2 | 4, .warps = {1, 4, 2}, .stages = 4, .blocks = 2,
     .costs = {{.start = 1.623, .round = 0.5908, .step = 0.4159, .stage = 0.01782, .split = 0.4527, .split_element = 2.217}}},
    {.mainloop = MainloopKind::mma, .m = 64, .n = 128, .split_k = kSplits, .warps = {1, 4, 2}, .stages = 3, .blocks = 2,
     .costs = {{.start = 1.998, .round = 1.065, .step = 0.9973, .split = 2.439, .split_element = 2.232}}},
    {.mainloop = MainloopKind::mma, .m = 64, .n = 256, .split_k = kSplits, .warps = {1, 8, 1}, .stages = 8, .blocks = 1,
     .costs = {{.start = 1.187, .round = 1.427, .step = 0.8206, .split = 3.055, .split_element = 3.088}}},
    {.mainloop = MainloopKind::mma, .m = 128, .n = 64, .split_k = 1 | 2 | 4, .warps = {2, 4, 1}, .stages = 4, .blocks = 2,
     .costs = {{.start = 1.157, .round = 0.9316, .step = 0.4513, .stage = 0.08175, .split = 1.237, .split_element = 1.085}}},
    {.mainloop = MainloopKind::mma, .m = 128, .n = 128, .split_k = 1 | 2 | 4, .warps = {2, 4, 1}, .stages = 3, .blocks = 2,
     .costs = {{.start = 1.283, .round = 1.5, .step = 0.7357, .stage = 0.1374, .split = 4.167, .split_element = 1.342}}},
    {.mainloop = MainloopKind::mma, .m = 128, .n = 256, .split_k = kSplits, .warps = {1, 8, 1}, .stages = 5, .blocks = 1,
     .costs = {{.start = 0.6743, .round = 3.864, .step = 1.323, .split = 6.035, .split_element = 2.435}}},
    {.mainloop = MainloopKind::mma, .m = 256, .n = 128, .split_k = 1 | 2 | 4, .warps = {2, 4, 1}, .stages = 2, .blocks = 1,
     .costs = {{.start = 0, .round = 6.477, .step = 1.491, .split = 4.774, .split_element = 1.51}}},
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
constexpr int threads(const Warps& w) { return 32 * w.m * w.n * w.k; }

inline constexpr int kStripBytes = kTileBytes / 4;  ///< codes and scales of 16 rows of a chunk

/// Reports whether warps load W from global memory to registers: those with two strips and at least
/// 64 rows of x. They dequantize the next chunk while they multiply.
constexpr bool is_direct(const KernelConfig& t) {
  const Kernel& k = kernel_of(t);
  return k.warps.k == 1 && t.n / 16 / k.warps.n == 2 && t.m / k.warps.m >= 64 && k.blocks == 1;
}
constexpr int x_stage_bytes(const KernelConfig& t) {
  return kernel_of(t).warps.k * t.m * kTileCols * 2;
}
constexpr int w_stage_bytes(const KernelConfig& t) {
  return is_direct(t) ? 0 : kernel_of(t).warps.k * (t.n / 16) * kStripBytes;
}
constexpr int ring_bytes(const KernelConfig& t) {
  return kernel_of(t).stages * (x_stage_bytes(t) + w_stage_bytes(t));
}
/// Returns the row stride, in floats, of the sums in shared memory. The stride avoids bank
/// conflicts.
constexpr int sum_stride(const KernelConfig& t) { return t.n + 4; }
/// Returns the rows of x whose sums are in shared memory at a time: a warp's rows, or as many as
/// fit.
constexpr int slab_rows(const KernelConfig& t) {
  int rows = t.m / kernel_of(t).warps.m;
  while (kernel_of(t).warps.k * rows * sum_stride(t) * 4 > 90 * 1024) rows /= 2;
  return rows;
}
constexpr int slab_bytes(const KernelConfig& t) {
  return kernel_of(t).warps.k * slab_rows(t) * sum_stride(t) * 4;
}
constexpr int state_offset(const KernelConfig& t) {
  return static_cast<int>(round_up(std::max(ring_bytes(t), slab_bytes(t)), 16));
}

/// Sizes of the workspace of blocks that share K. It starts with a counter for each tile, which
/// every GEMM resets to zero. Sums follow; the last block of a tile adds them up.
inline constexpr int kMostSplitTiles = 1024;
inline constexpr std::int64_t kCounterBytes = kMostSplitTiles * 4;

}  // namespace nvfp4::cuda::sm80
