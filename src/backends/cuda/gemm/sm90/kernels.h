#pragma once

#include <cstdint>
#include <span>

#include "backends/cuda/gemm/kernel_config.h"
#include "nvfp4/layout.h"

/// The kernels of sm_90 and the properties of a tile. Host and device.
namespace nvfp4::cuda {

/// Every kernel once, ordered by m, then n. A new kernel also needs registers for its warpgroups in
/// wgmma_config.cuh. Tiles of n = 192, and of m = 48, 96, 144, 160 and 192, serve sizes that fill
/// power-of-two tiles poorly. Costs are start, round, step, megabyte and wave for each split_k; a
/// small-M step is two chunks of every part of K. tools/fit_gemm_cost.py fits and replaces them.
/// These were fitted to measurements on an H200. Those of m up to 32 were then changed so that the
/// chosen kernels take the least time: 1.006 of the fastest in the median of 256 GEMMs of 1 to 64
/// rows, and 1.007 in 129 of held-back shapes.
// clang-format off
inline constexpr Kernel kSm90Kernels[] = {
    {.mainloop = MainloopKind::routed, .m = 1, .n = 32},
    {.mainloop = MainloopKind::routed, .m = 1, .n = 64},
    {.mainloop = MainloopKind::routed, .m = 1, .n = 128},
    {.mainloop = MainloopKind::routed, .m = 1, .n = 224},
    {.mainloop = MainloopKind::small_m, .m = 2, .n = 16,
     .costs = {{0.8658, 0.7077, 0.5697, 0.1000, 0.4211}}},
    {.mainloop = MainloopKind::small_m, .m = 2, .n = 32,
     .costs = {{0.0498, 1.8877, 0.5153, 0.0207, 0.0000}}},
    {.mainloop = MainloopKind::small_m, .m = 2, .n = 64,
     .costs = {{0.0000, 1.5106, 0.5251, 0.0000, 0.8033}}},
    {.mainloop = MainloopKind::small_m, .m = 2, .n = 128,
     .costs = {{0.0000, 1.3332, 0.4729, 0.0694, 0.0000}}},
    {.mainloop = MainloopKind::small_m, .m = 8, .n = 16,
     .costs = {{0.8283, 0.6015, 0.6618, 0.0167, 1.0267}}},
    {.mainloop = MainloopKind::small_m, .m = 8, .n = 32,
     .costs = {{1.0389, 0.5035, 0.5417, 0.0360, 1.6233}}},
    {.mainloop = MainloopKind::small_m, .m = 8, .n = 64,
     .costs = {{0.6390, 0.7857, 0.5560, 0.0718, 0.8417}}},
    {.mainloop = MainloopKind::wgmma, .m = 8, .n = 64, .split_k = 2 | 4 | 8, .stage_chunks = 4,
     .costs = {{},
               {1.8779, 0.3793, 0.2352, 0.0777, 2.1249},
               {0.7323, 1.5631, 0.2585, 0.0659, 0.0000},
               {0.9932, 2.6110, 0.2315, 0.0533, 0.0000}}},
    {.mainloop = MainloopKind::wgmma, .m = 8, .n = 128, .split_k = 1 | 2 | 4 | 8, .stage_chunks = 4,
     .costs = {{1.4762, 0.0000, 0.5004, 0.0015, 2.2440},
               {1.6484, 0.2601, 0.5103, 0.0045, 1.3992},
               {1.2757, 1.0481, 0.4686, 0.0540, 0.9169},
               {1.0337, 2.3346, 0.4063, 0.0736, 0.0000}}},
    {.mainloop = MainloopKind::small_m, .m = 16, .n = 32,
     .costs = {{1.5295, 0.2591, 0.7422, 0.0895, 1.4656}}},
    {.mainloop = MainloopKind::small_m, .m = 16, .n = 64,
     .costs = {{1.1886, 0.3628, 0.6729, 0.0929, 1.4315}}},
    {.mainloop = MainloopKind::wgmma, .m = 16, .n = 64, .split_k = 2 | 4 | 8,
     .stage_chunks = 4, .stream_k = true,
     .costs = {{},
               {1.2005, 0.7429, 0.2529, 0.0501, 1.3842},
               {0.6651, 1.6761, 0.2531, 0.0740, 0.0000},
               {0.9998, 2.8279, 0.2364, 0.0475, 0.0000}}},
    {.mainloop = MainloopKind::wgmma, .m = 16, .n = 128, .split_k = 1 | 2 | 4 | 8,
     .stage_chunks = 4,
     .costs = {{1.4949, 0.2418, 0.5312, 0.0550, 0.0000},
               {2.0657, 0.0400, 0.5113, 0.0793, 2.3384},
               {1.2902, 1.1702, 0.5035, 0.0795, 0.7039},
               {1.3034, 2.3061, 0.4489, 0.0595, 0.0000}}},
    {.mainloop = MainloopKind::wgmma, .m = 32, .n = 64, .split_k = 1 | 2 | 4 | 8,
     .stage_chunks = 4, .stream_k = true,
     .costs = {{1.0860, 0.6569, 0.3194, 0.0403, 0.2192},
               {1.2459, 0.8953, 0.3228, 0.0000, 1.5253},
               {0.5514, 1.9459, 0.2696, 0.0970, 0.0000},
               {1.1118, 2.9527, 0.2976, 0.0537, 0.0000}}},
    {.mainloop = MainloopKind::wgmma, .m = 32, .n = 128, .split_k = 1 | 2 | 4 | 8,
     .stage_chunks = 2,
     .costs = {{0.9783, 0.6819, 0.3122, 0.1000, 0.0000},
               {1.2944, 1.1612, 0.3044, 0.0756, 0.3663},
               {1.1787, 1.1828, 0.3152, 0.0705, 0.4137},
               {1.0589, 2.2660, 0.2909, 0.0633, 0.0000}}},
    {.mainloop = MainloopKind::wgmma, .m = 48, .n = 192, .split_k = 1 | 2,
     .stage_chunks = 4, .m_shapes = {{32, 48}},
     .costs = {{1.1795, 1.2133, 0.8444, 0.0738, 0.0000},
               {0.5508, 2.1963, 1.0064, 0.0000, 2.0929}}},
    {.mainloop = MainloopKind::wgmma, .m = 64, .n = 64, .split_k = 1 | 2 | 4 | 8,
     .stage_chunks = 4, .early_stage_chunks = 2, .stream_k = true,
     .costs = {{0.0087, 2.0376, 0.3865, 0.0279, 1.2029},
               {0.0007, 2.5592, 0.4434, 0.0411, 0.7560},
               {0.0000, 2.7451, 0.4993, 0.0000, 0.9760},
               {0.0000, 4.5464, 0.6302, 0.0000, 0.1616}}},
    {.mainloop = MainloopKind::wgmma, .m = 64, .n = 128, .split_k = 1 | 2 | 4 | 8,
     .stage_chunks = 4, .early_stage_chunks = 2, .m_shapes = {{32, 40, 48, 64}},
     .costs = {{0.7944, 1.1477, 0.7530, 0.0795, 0.0305},
               {0.1311, 2.4846, 0.8050, 0.0565, 1.3314},
               {0.0020, 3.0126, 0.8792, 0.0322, 1.0275},
               {0.0000, 3.4248, 0.9623, 0.0301, 0.3677}}},
    {.mainloop = MainloopKind::wgmma, .m = 64, .n = 192, .split_k = 1 | 2,
     .stage_chunks = 4, .m_shapes = {{40, 64}},
     .costs = {{1.2132, 1.0441, 1.0756, 0.0441, 0.7752},
               {1.0803, 2.3568, 1.1109, 0.0120, 2.6028}}},
    {.mainloop = MainloopKind::wgmma, .m = 96, .n = 128, .split_k = 1 | 2,
     .stage_chunks = 2, .m_shapes = {{64, 80, 96}},
     .costs = {{0.8752, 1.1669, 0.4658, 0.0059, 1.5307},
               {0.2524, 2.5654, 0.4864, 0.0000, 2.3678}}},
    {.mainloop = MainloopKind::wgmma, .m = 96, .n = 192, .split_k = 1 | 2, .stage_chunks = 2,
     .costs = {{1.5230, 0.6559, 0.6966, 0.0653, 0.9347},
               {1.6813, 1.9618, 0.7206, 0.0363, 3.8327}}},
    {.mainloop = MainloopKind::wgmma, .m = 128, .n = 64, .split_k = 1 | 2 | 4 | 8,
     .stage_chunks = 2,
     .costs = {{0.0020, 2.2507, 0.3356, 0.0247, 1.3748},
               {0.0000, 3.2826, 0.3414, 0.0279, 1.4462},
               {0.0000, 3.7060, 0.4235, 0.0000, 1.5900},
               {0.0000, 4.7876, 0.5656, 0.0000, 0.4557}}},
    {.mainloop = MainloopKind::wgmma, .m = 128, .n = 128, .split_k = 1 | 2 | 4 | 8,
     .stage_chunks = 2, .m_shapes = {{32, 64, 128}},
     .costs = {{0.5558, 1.4765, 0.6228, 0.0384, 0.0000},
               {0.0012, 3.4713, 0.6293, 0.0091, 1.4271},
               {0.0015, 4.0587, 0.6341, 0.0278, 0.9872},
               {0.0000, 5.1495, 0.7161, 0.0000, 0.5903}}},
    {.mainloop = MainloopKind::wgmma, .m = 128, .n = 192, .split_k = 1 | 2, .stage_chunks = 2,
     .costs = {{0.2482, 2.5027, 0.9385, 0.0000, 0.0000},
               {0.0000, 4.3339, 0.9598, 0.0000, 1.6589}}},
    {.mainloop = MainloopKind::wgmma, .m = 144, .n = 128, .split_k = 1 | 2,
     .stage_chunks = 2, .m_shapes = {{64, 128, 144}},
     .costs = {{0.0000, 1.8848, 0.6712, 0.0033, 0.3728},
               {0.0000, 3.3582, 0.6958, 0.0000, 2.0393}}},
    {.mainloop = MainloopKind::wgmma, .m = 160, .n = 128, .split_k = 1 | 2, .stage_chunks = 1,
     .costs = {{0.1975, 1.8156, 0.3865, 0.0182, 0.0177},
               {0.0000, 3.6771, 0.4013, 0.0000, 1.9629}}},
    {.mainloop = MainloopKind::wgmma, .m = 192, .n = 128, .split_k = 1 | 2, .stage_chunks = 1,
     .costs = {{0.0071, 2.3740, 0.4540, 0.0106, 0.2558},
               {0.0007, 4.0445, 0.4730, 0.0043, 2.4404}}},
    {.mainloop = MainloopKind::wgmma, .m = 256, .n = 64, .stage_chunks = 1,
     .costs = {{0.0028, 2.0128, 0.3355, 0.0583, 0.0404}}},
    {.mainloop = MainloopKind::wgmma, .m = 256, .n = 128, .split_k = 1 | 2 | 4 | 8,
     .stage_chunks = 1,
     .costs = {{0.6991, 2.6326, 0.6129, 0.0740, 0.0226},
               {0.0130, 4.9368, 0.6200, 0.0913, 2.7375},
               {0.1512, 5.8791, 0.5947, 0.1000, 1.8844},
               {0.0000, 7.6101, 0.6185, 0.0935, 0.7909}}},
};
// clang-format on
static_assert(are_distinct(kSm90Kernels), "two kernels have the same tile and split");

/// Reports whether each split of a kernel has a cost. Routed kernels have none.
constexpr bool have_costs(std::span<const Kernel> kernels) {
  for (const Kernel& k : kernels)
    for (int i = 0; i < 4; ++i)
      if ((k.costs[i].step > 0) !=
          (k.mainloop != MainloopKind::routed && (k.split_k >> i & 1) != 0))
        return false;
  return true;
}
static_assert(have_costs(kSm90Kernels), "a kernel of kSm90Kernels has no cost");

/// Returns the kernel with this tile and split, or null.
constexpr const Kernel* sm90_kernel(const KernelConfig& t) { return find_kernel(kSm90Kernels, t); }
constexpr bool is_kernel(const KernelConfig& t) { return sm90_kernel(t) != nullptr; }
constexpr bool has_mainloop(const KernelConfig& t, MainloopKind mainloop) {
  const Kernel* k = sm90_kernel(t);
  return k != nullptr && k->mainloop == mainloop;
}
constexpr bool is_routed(const KernelConfig& t) { return has_mainloop(t, MainloopKind::routed); }
/// Reports whether the warps of a block share strips of 16 rows of W and parts of K.
constexpr bool is_small_m(const KernelConfig& t) { return has_mainloop(t, MainloopKind::small_m); }

inline constexpr int kPerWarpXM = 2;  ///< m of tiles whose warps load x themselves
/// Reports whether two thread blocks, of this kernel or of the next, fit on one multiprocessor.
/// Tiles of m = 64 leave room if the next kernel may start early; with n = 128 a block then has
/// only one tile.
constexpr bool leaves_room(const KernelConfig& t) {
  return t.n <= 128 && (t.m <= 32 || (t.m == 64 && t.launch_dependents_step > 0));
}
constexpr int blocks_per_multiprocessor(const KernelConfig& t) { return leaves_room(t) ? 2 : 1; }
/// Returns the number of chunks of 64 columns of a stage. One thread cannot start many small copies
/// fast enough.
constexpr int stage_chunks(const KernelConfig& t) {
  const Kernel& k = *sm90_kernel(t);
  return k.early_stage_chunks > 0 && leaves_room(t) ? k.early_stage_chunks : k.stage_chunks;
}
/// Returns the parts of K of a small-M tile: its 16 warps (14 if n = 224) divided by its strips.
constexpr int small_m_k_parts(const KernelConfig& t) { return 16 * 16 / t.n; }

/// Reports whether blocks may leave a part of K to stream-K blocks.
constexpr bool has_stream_k(const KernelConfig& t) {
  const Kernel* k = sm90_kernel(t);
  return k != nullptr && k->stream_k && (t.m != 64 || t.launch_dependents_step == 0);
}
/// Sizes of a workspace: a flag for each slice of K that a stream-K block takes, then sums.
inline constexpr int kMostStreamKTiles = 512;
inline constexpr int kMostTilesOfStreamKBlock = 16;
inline constexpr std::int64_t kStreamKFlagBytes = kMostStreamKTiles * 4;
inline constexpr std::int64_t kStreamKSumBytes = std::int64_t{5} << 20;
/// Returns the bytes of a slice: two warpgroups have separate sums.
constexpr std::int64_t stream_k_sum_bytes(const KernelConfig& t) {
  return std::int64_t{t.n} * t.m * 2 * 4;
}

/// Returns the rows of x that one copy fetches. TMA would fill missing rows with zeros, but slowly.
/// Their content does not matter, because the sums of a row depend on that row alone.
constexpr int box_rows(const KernelConfig& t, std::int64_t rows) {
  if (rows >= t.m) return t.m;
  return static_cast<int>(is_small_m(t) ? rows : round_up(rows, 8));  // M of wgmma
}
/// Returns the chunks of each part of K in a small-M stage. With n = 16, x is most of a stage;
/// above four rows of x, smaller stages shorten the wait.
constexpr int small_m_chunks(const KernelConfig& t, int x_box) {
  return t.m == 8 && t.n == 16 && x_box > 4 ? 1 : 2;
}
/// Returns the chunks of 64 columns of one copy of x.
constexpr int box_chunks(const KernelConfig& t, int x_box) {
  return is_small_m(t) ? small_m_chunks(t, x_box) * small_m_k_parts(t) : stage_chunks(t);
}

// The two or three consumer warpgroups have different rows of W (n_groups), rows of x (m_groups) or
// parts of K (k_groups).
constexpr int n_groups(const KernelConfig& t) { return t.n >= 128 ? t.n / 64 : 1; }
constexpr int m_groups(const KernelConfig& t) { return t.n == 64 && t.m == 256 ? 2 : 1; }
constexpr int k_groups(const KernelConfig& t) { return n_groups(t) * m_groups(t) > 1 ? 1 : 2; }
/// Reports whether a block has only one tile. Its sums are then added in the memory of its stages.
/// If they are parts of K, the order of summation depends on the tile.
constexpr bool is_single_tile(const KernelConfig& t) {
  if (is_small_m(t) || is_routed(t) || t.split_k > 1) return true;
  return k_groups(t) > 1 || (t.m == 64 && leaves_room(t));
}

/// Returns the values of M that a kernel multiplies. A block with only one tile has one.
constexpr MShapes m_shapes(const KernelConfig& t) {
  const Kernel* k = sm90_kernel(t);
  return k == nullptr || k->m_shapes.count() == 0 || is_single_tile(t) ? MShapes{{t.m}}
                                                                       : k->m_shapes;
}

/// Reports whether whole tiles of out, 64 columns for each warpgroup, are stored by TMA.
constexpr bool has_tma_store(const KernelConfig& t) { return t.m >= 48 && !is_single_tile(t); }
/// Reports whether tiles are stored in boxes of a few rows, as many as the tile has.
constexpr bool has_tma_store_boxes(const KernelConfig& t) {
  return has_tma_store(t) && m_shapes(t).count() > 1;
}
/// Returns the rows of a box of out: those of a warpgroup, or fewer where tiles may be partial.
constexpr int out_box_rows(const KernelConfig& t, bool grouped) {
  return grouped && has_tma_store_boxes(t) ? 16 : t.m / m_groups(t);
}
/// Reports whether the kernel sums in the common order of all batch-invariant kernels. The mma.sync
/// of m = 8 may add in another order than wgmma.
constexpr bool is_batch_invariant(const KernelConfig& t) {
  return !is_small_m(t) && t.split_k == 1 && k_groups(t) == 1 && t.m > 8 && t.stream_k_steps == 0;
}

}  // namespace nvfp4::cuda
