// Shared by the GEMM kernels: packed weights in SIMD lanes, a row of the panel in each lane.
#if defined(NVFP4_GEMM_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef NVFP4_GEMM_INL_H
#undef NVFP4_GEMM_INL_H
#else
#define NVFP4_GEMM_INL_H
#endif

#include <type_traits>

#include "backends/cpu/lanes-inl.h"
#include "backends/gemm_kernels.h"

HWY_BEFORE_NAMESPACE();
namespace nvfp4::cpu::HWY_NAMESPACE {
#if NVFP4_HAVE_LANES
namespace {

inline constexpr int kVectors = static_cast<int>(kPanelRows) / static_cast<int>(kLanes);
/// Bytes between the vectors of a panel: 4 bytes of codes for each row, 1 of scales.
inline constexpr std::int64_t kCodeStep = static_cast<std::int64_t>(kLanes) * 4;
inline constexpr std::int64_t kScaleStep = static_cast<std::int64_t>(kLanes);
inline constexpr std::int64_t kHalfBlock = kPanelRows * 4;  // bytes of 8 elements of 16 rows

#if HWY_TARGET <= HWY_AVX3
inline constexpr bool kFused = true;
inline constexpr int kRegisters = 32;
#else
inline constexpr bool kFused = HWY_TARGET != HWY_SSE4;
inline constexpr int kRegisters = HWY_ARCH_ARM ? 32 : 16;
#endif

/// Returns kLanes block scales times 2^-kScaleExponent. FP16 includes E4M3's exponents, so the bits
/// are shifted and the CPU converts. Packed weights have no NaN.
#if HWY_TARGET <= HWY_AVX3
inline constexpr int kScaleExponent = 8;
HWY_INLINE VF load_scales(const std::uint8_t* p) {
  const __m256i wide = _mm256_cvtepu8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  return VF{_mm512_cvtph_ps(_mm256_slli_epi16(wide, 7))};
}
#elif HWY_TARGET == HWY_AVX2
inline constexpr int kScaleExponent = 8;
HWY_INLINE VF load_scales(const std::uint8_t* p) {
  const __m128i wide = _mm_cvtepu8_epi16(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
  return VF{_mm256_cvtph_ps(_mm_slli_epi16(wide, 7))};
}
#else
inline constexpr int kScaleExponent = 0;
HWY_INLINE VF load_scales(const std::uint8_t* p) {
  const hn::Rebind<std::uint8_t, F32> d8;
  return e4m3_decode(hn::PromoteTo(U32(), hn::LoadU(d8, p)));
}
#endif

HWY_INLINE VU load_words(const std::uint8_t* p) {
  return hn::BitCast(U32(), hn::LoadU(hn::Repartition<std::uint8_t, F32>(), p));
}

/// Iterates over the blocks of kPanels panels at once, in the layout of panel_block(). It
/// prefetches later blocks: nine cache lines for every four blocks of a panel.
template <int kPanels>
class BlockCursor {
 public:
  HWY_INLINE explicit BlockCursor(const Panels& w) : left_(w.blocks), apart_(w.bytes) {
    start(w.data);
  }
  HWY_INLINE const std::uint8_t* codes(int panel) const { return codes_ + panel * apart_; }
  HWY_INLINE const std::uint8_t* scales(int panel) const { return scales_ + panel * apart_; }
  HWY_INLINE bool done() const { return left_ <= 0; }
  HWY_INLINE void next() {
    if (--left_in_group_ == 0) {
      left_ -= kGroupBlocks;
      return start(group_ + kGroupBytes);
    }
    codes_ += 2 * kHalfBlock;
    scales_ += kPanelRows;
    prefetch();
  }

 private:
  static constexpr std::int64_t kFar = 4096;

  HWY_INLINE void start(const std::uint8_t* group) {
    group_ = group;
    // After the end of a panel lies another one that is read at the same time. The data after the
    // last panel is needed next, at least where a vector holds a block's scales. Otherwise it is
    // prefetched too early.
    far_ = kFar + (left_ * kPanelRows * 9 <= kFar ? (kPanels - 1) * apart_ : 0);
    left_in_group_ = HWY_MIN(kGroupBlocks, left_);
    scales_ = group;
    codes_ = group + left_in_group_ * kPanelRows;
    HWY_UNROLL(4)
    for (int j = 0; j < kPanels; ++j) fetch(scales(j));
    prefetch();
  }
  HWY_INLINE void prefetch() const {
    HWY_UNROLL(4)
    for (int j = 0; j < kPanels; ++j) {
      fetch(codes(j));
      fetch(codes(j) + kHalfBlock);
    }
  }
  /// Prefetches to the L2 cache first. A prefetch from memory would occupy the few buffers of the
  /// L1 cache for too long.
  HWY_INLINE void fetch(const std::uint8_t* p) const {
    // Computed as integers, because addresses may be past the end of the weights.
    const auto at = reinterpret_cast<std::uintptr_t>(p);
    __builtin_prefetch(reinterpret_cast<const void*>(at + static_cast<std::uintptr_t>(far_)), 0, 2);
    __builtin_prefetch(reinterpret_cast<const void*>(at + 1024));
  }

  const std::uint8_t *group_, *codes_, *scales_;
  std::int64_t left_, left_in_group_, apart_, far_;
};

/// Calls f with n in 1..kMost as a constant.
template <int kMost, class F>
HWY_INLINE void with_constant(std::int64_t n, F&& f) {
  if constexpr (kMost > 1)
    if (n < kMost) return with_constant<kMost - 1>(n, f);
  f(std::integral_constant<int, kMost>());
}

/// Returns the number of panels that direct kernels process together. Memory limits them, and
/// several streams are faster than one.
constexpr int panels_in_turn(int rows) { return rows <= 4 ? 4 : 2; }

/// Calls f(rows, panels, first panels, their sums) for all panels. The first two arguments are
/// constants.
template <int kMostRows, class F>
HWY_INLINE void for_panels(const Panels& w, int rows, float* sums, F&& f) {
  with_constant<kMostRows>(rows, [&](auto n) {
    constexpr int kMost = panels_in_turn(decltype(n)::value);
    for (std::int64_t p = 0; p < w.count; p += kMost) {
      const std::int64_t now = HWY_MIN(kMost, w.count - p);
      with_constant<kMost>(now, [&](auto panels) {
        f(n, panels, Panels{w.data + p * w.bytes, w.bytes, now, w.blocks}, sums + p * kPanelRows);
      });
    }
  });
}

/// Loads sum[j][t]: row t of x, a vector of panel j.
template <int kPanels, int kRows>
HWY_INLINE void load_sums(const float* sums, std::int64_t stride, VF (&sum)[kPanels][kRows]) {
  HWY_UNROLL(4)
  for (int j = 0; j < kPanels; ++j) {
    HWY_UNROLL(8)
    for (int t = 0; t < kRows; ++t)
      sum[j][t] = hn::LoadU(F32(), sums + t * stride + j * kPanelRows);
  }
}
template <int kPanels, int kRows>
HWY_INLINE void store_sums(const VF (&sum)[kPanels][kRows], float* sums, std::int64_t stride) {
  HWY_UNROLL(4)
  for (int j = 0; j < kPanels; ++j) {
    HWY_UNROLL(8)
    for (int t = 0; t < kRows; ++t)
      hn::StoreU(sum[j][t], F32(), sums + t * stride + j * kPanelRows);
  }
}

}  // namespace
#endif  // NVFP4_HAVE_LANES
}  // namespace nvfp4::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // NVFP4_GEMM_INL_H
