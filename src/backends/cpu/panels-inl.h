// Panels of packed weights: 16 rows at a time, encoded in the order in which GEMM reads them.
#if defined(NVFP4_PANELS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef NVFP4_PANELS_INL_H
#undef NVFP4_PANELS_INL_H
#else
#define NVFP4_PANELS_INL_H
#endif

#include <vector>

#include "backends/backend.h"
#include "backends/cpu/encode-inl.h"
#include "backends/cpu/kernels.h"
#include "hwy/cache_control.h"

HWY_BEFORE_NAMESPACE();
namespace nvfp4::cpu::HWY_NAMESPACE {
#if NVFP4_HAVE_LANES

static_assert(kPanelRows % kLanes == 0, "the lanes hold rows of one block");

/// The blocks of a panel. Block i is block i / 16 of row i % 16.
template <class T>
struct PanelBlocks {
  static constexpr bool kStreams = false;
  static constexpr bool kLoadsPairs = std::is_same_v<T, BF16>;
  /// Distance of prefetches. Rows are read in pieces of a cache line, too many for the hardware
  /// prefetcher.
  static constexpr std::int64_t kAhead = 512;

  const T* x;  // first row
  std::int64_t stride, rows, blocks;
  const float* weights;  // K weights, or null
  std::uint8_t* panel;
  bool stream;  // codes bypass the caches
  alignas(64) float divisor[kPanelRows], multiplier[kPanelRows];

  template <bool kPairs>
  HWY_INLINE void load(std::int64_t first, std::int64_t, Batch<16, kPairs>& batch) const {
    constexpr auto kRows = static_cast<std::int64_t>(kLanes);
    const std::int64_t b = first / kPanelRows, r0 = first % kPanelRows;
    const T* from = x + r0 * stride + b * 16;
    const bool in_words = sizeof(T) == 4 || stride % 2 == 0;
    std::int64_t step = stride * static_cast<std::int64_t>(sizeof(T)) / 4;
    alignas(64) T part[16 * kLanes];
    if (HWY_LIKELY(r0 + kRows <= rows && in_words)) {
      // Prefetches cache lines of all 16 rows. With pairs, two batches of the same rows share a
      // line.
      const std::int64_t r1 = first / kRows * batch.kRows % kPanelRows;
      batch.next = reinterpret_cast<const std::byte*>(x + r1 * stride + b * 16) + kAhead;
      batch.next_step = stride * static_cast<std::int64_t>(sizeof(T));
    } else {
      from = copy_blocks<16>(from, stride, HWY_MIN(kRows, rows - r0), part);
      step = 16 * sizeof(T) / 4;
    }
    load_blocks<16>(from, batch.x, static_cast<std::size_t>(step));
    if (weights != nullptr)
      for (int i = 0; i < 16; ++i)
        hn::Store(set_f32(weights[b * 16 + i]), F32(),
                  batch.weights + static_cast<std::size_t>(i) * kLanes);
    hn::Store(hn::Load(F32(), divisor + r0), F32(), batch.divisor);
    hn::Store(hn::Load(F32(), multiplier + r0), F32(), batch.multiplier);
  }
  template <bool kPairs>
  HWY_INLINE void store(std::int64_t first, std::int64_t, const Batch<16, kPairs>& batch) const {
    for (std::size_t half = 0; half < 2; ++half) {
      const VU packed = hn::Load(U32(), batch.packed + half * kLanes);
      if (stream)
        hn::Stream(packed, U32(), words(first, half));
      else
        hn::StoreU(packed, U32(), words(first, half));
    }
  }
  template <bool kPairs>
  void store_one(std::int64_t index, const Batch<16, kPairs>& batch, std::size_t lane) const {
    for (std::size_t half = 0; half < 2; ++half)
      std::memcpy(words(index, half), batch.packed + half * kLanes + lane, 4);
  }

 private:
  std::uint32_t* words(std::int64_t index, std::size_t half) const {
    const std::int64_t row = static_cast<std::int64_t>(half) * kPanelRows + index % kPanelRows;
    return reinterpret_cast<std::uint32_t*>(panel + panel_block(index / kPanelRows, blocks).codes +
                                            row * 4);
  }
};

/// Encodes rows [v0, v1) of a tile; v0 is the first row of a panel.
template <class Kernel, class T>
void encode_panels(const EncodeJob& job, const Tile& tile) {
  const QuantizedShape& s = job.out.shape;
  const std::int64_t blocks = s.blocks(), panel_bytes = kPanelRows * blocks * 9;
  const bool each = s.scope == GlobalScope::vector;
  const bool stream = Kernel::kStoresOnce && s.code_bytes() > kBeyondCaches &&
                      blocks % kGroupBlocks == 0 &&
                      reinterpret_cast<std::uintptr_t>(job.panels) % 64 == 0;
  thread_local std::vector<std::uint8_t> scales;
  scales.resize(static_cast<std::size_t>(blocks * kPanelRows));
  for (std::int64_t v = tile.v0; v < tile.v1; v += kPanelRows) {
    PanelBlocks<T> run{static_cast<const T*>(job.x.data) + (v - job.first_row) * job.x.stride,
                       job.x.stride,
                       HWY_MIN(kPanelRows, tile.v1 - v),
                       blocks,
                       job.weights,
                       job.panels + v / kPanelRows * panel_bytes,
                       stream,
                       {},
                       {}};
    for (std::int64_t r = 0; r < kPanelRows; ++r) {
      run.divisor[r] = job.divisors[each ? v + HWY_MIN(r, run.rows - 1) : 0];
      run.multiplier[r] = 1.0f / run.divisor[r];
    }
    Kernel::template run<16>(run, blocks * kPanelRows, job, scales.data());
    for (std::int64_t b = 0; b < blocks; ++b) {
      std::uint8_t* to = run.panel + panel_block(b, blocks).scales;
      std::memcpy(to, scales.data() + b * kPanelRows, kPanelRows);
      std::memset(to + run.rows, 0, static_cast<std::size_t>(kPanelRows - run.rows));
    }
  }
  if (stream) hwy::FlushStream();
}

#endif  // NVFP4_HAVE_LANES
}  // namespace nvfp4::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // NVFP4_PANELS_INL_H
