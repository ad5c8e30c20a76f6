#pragma once

#include <bit>
#include <cstdint>
#include <span>

#include "backends/cuda/gemm/kernel_config.h"
#include "backends/cuda/gemm/m_shapes.h"
#include "nvfp4/layout.h"

/// The kernels of sm_90 and the properties of a tile. Host and device.
namespace nvfp4::cuda {

/// Every kernel once, ordered by m, then n. The launcher instantiates them, the cost model chooses
/// among them, and names are derived from them. A new kernel also needs a row in kernel_costs.cc
/// for each split, and registers for its warpgroups in wgmma_config.cuh. Tiles of n = 192, and of m
/// = 48, 96, 144, 160 and 192, serve sizes that fill power-of-two tiles poorly.
inline constexpr KernelEntry kSm90Kernels[] = {
    {MainloopKind::routed, 1, 32, 1},
    {MainloopKind::routed, 1, 64, 1},
    {MainloopKind::routed, 1, 128, 1},
    {MainloopKind::routed, 1, 224, 1},
    {MainloopKind::small_m, 2, 16, 1},
    {MainloopKind::small_m, 2, 32, 1},
    {MainloopKind::small_m, 2, 64, 1},
    {MainloopKind::small_m, 2, 128, 1},
    {MainloopKind::small_m, 8, 16, 1},
    {MainloopKind::small_m, 8, 32, 1},
    {MainloopKind::small_m, 8, 64, 1},
    {MainloopKind::wgmma, 8, 64, 2 | 4 | 8},
    {MainloopKind::wgmma, 8, 128, 1 | 2 | 4 | 8},
    {MainloopKind::small_m, 16, 32, 1},
    {MainloopKind::small_m, 16, 64, 1},
    {MainloopKind::wgmma, 16, 64, 2 | 4 | 8, false, true},
    {MainloopKind::wgmma, 16, 128, 1 | 2 | 4 | 8},
    {MainloopKind::wgmma, 32, 64, 1 | 2 | 4 | 8, false, true},
    {MainloopKind::wgmma, 32, 128, 1 | 2 | 4 | 8},
    {MainloopKind::wgmma, 48, 192, 1 | 2},
    {MainloopKind::wgmma, 64, 64, 1 | 2 | 4 | 8, true, true},
    {MainloopKind::wgmma, 64, 128, 1 | 2 | 4 | 8, true},
    {MainloopKind::wgmma, 64, 192, 1 | 2},
    {MainloopKind::wgmma, 96, 128, 1 | 2},
    {MainloopKind::wgmma, 96, 192, 1 | 2},
    {MainloopKind::wgmma, 128, 64, 1 | 2 | 4 | 8},
    {MainloopKind::wgmma, 128, 128, 1 | 2 | 4 | 8},
    {MainloopKind::wgmma, 128, 192, 1 | 2},
    {MainloopKind::wgmma, 144, 128, 1 | 2},
    {MainloopKind::wgmma, 160, 128, 1 | 2},
    {MainloopKind::wgmma, 192, 128, 1 | 2},
    {MainloopKind::wgmma, 256, 64, 1},
    {MainloopKind::wgmma, 256, 128, 1 | 2 | 4 | 8},
};

/// Reports whether tile and split identify an entry, as sm90_entry() needs.
constexpr bool are_distinct(std::span<const KernelEntry> entries) {
  for (std::size_t i = 0; i < entries.size(); ++i)
    for (std::size_t j = 0; j < i; ++j)
      if (entries[i].m == entries[j].m && entries[i].n == entries[j].n &&
          (entries[i].split_k & entries[j].split_k) != 0)
        return false;
  return true;
}
static_assert(are_distinct(kSm90Kernels), "two kernels have the same tile and split");

/// Returns the entry of a kernel, or null.
constexpr const KernelEntry* sm90_entry(const KernelConfig& t) {
  if (t.split_k < 1 || !std::has_single_bit(static_cast<unsigned>(t.split_k))) return nullptr;
  for (const KernelEntry& e : kSm90Kernels)
    if (e.m == t.m && e.n == t.n && (e.split_k & t.split_k) != 0) return &e;
  return nullptr;
}
constexpr bool is_kernel(const KernelConfig& t) { return sm90_entry(t) != nullptr; }
constexpr bool has_mainloop(const KernelConfig& t, MainloopKind mainloop) {
  const KernelEntry* e = sm90_entry(t);
  return e != nullptr && e->mainloop == mainloop;
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
  if (t.m == 48 || t.m == 64) return leaves_room(t) ? 2 : 4;
  return t.m <= 16 || (t.m == 32 && t.n == 64) ? 4 : t.m <= 144 ? 2 : 1;
}
/// Returns the parts of K of a small-M tile: its 16 warps (14 if n = 224) divided by its strips.
constexpr int small_m_k_parts(const KernelConfig& t) { return 16 * 16 / t.n; }

/// Reports whether blocks may leave a part of K to stream-K blocks.
constexpr bool has_stream_k(const KernelConfig& t) {
  const KernelEntry* e = sm90_entry(t);
  return e != nullptr && e->stream_k && (t.m != 64 || t.launch_dependents_step == 0);
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

constexpr MShapes m_shapes(const KernelConfig& t) {
  if (t.n == 192 && !is_single_tile(t)) {
    if (t.m == 48) return {{32, 48}};
    if (t.m == 64) return {{40, 64}};
  }
  if (t.n == 128 && !is_single_tile(t)) {
    if (t.m == 64) return {{32, 40, 48, 64}};
    if (t.m == 96) return {{64, 80, 96}};
    if (t.m == 128) return {{32, 64, 128}};
    if (t.m == 144) return {{64, 128, 144}};
  }
  return {{t.m}};
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
