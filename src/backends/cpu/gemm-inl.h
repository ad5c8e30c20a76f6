// What the GEMM kernels share: packed weights on SIMD lanes, a row of the panel in each lane.
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
/// Bytes between the vectors of a panel: 4 bytes of codes a row, 1 of scales.
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

/// kLanes block scales times 2^-kScaleExponent: FP16 has E4M3's exponents and more, so the bits
/// move into place and the CPU converts. Never NaN in packed weights.
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

/// Goes through the blocks of a panel, as panel_block() places them, and fetches what will be
/// wanted some blocks later: nine lines for every four blocks.
class BlockCursor {
 public:
  const std::uint8_t *codes, *scales;

  HWY_INLINE BlockCursor(const std::uint8_t* panel, std::int64_t blocks) : left_(blocks) {
    start(panel);
  }
  HWY_INLINE bool done() const { return left_ <= 0; }
  HWY_INLINE void next() {
    if (--left_in_group_ == 0) {
      left_ -= kGroupBlocks;
      return start(group_ + kGroupBytes);
    }
    codes += 2 * kHalfBlock;
    scales += kPanelRows;
    prefetch();
  }

 private:
  HWY_INLINE void start(const std::uint8_t* group) {
    group_ = group;
    left_in_group_ = HWY_MIN(kGroupBlocks, left_);
    scales = group;
    codes = group + left_in_group_ * kPanelRows;
    fetch(group);
    prefetch();
  }
  HWY_INLINE void prefetch() const {
    fetch(codes);
    fetch(codes + kHalfBlock);
  }
  /// Into the L2 cache first: what comes from memory would occupy the few buffers of the L1 cache
  /// for too long.
  static HWY_INLINE void fetch(const std::uint8_t* p) {
    __builtin_prefetch(p + 4096, 0, 2);
    __builtin_prefetch(p + 1024);
  }

  const std::uint8_t* group_;
  std::int64_t left_, left_in_group_;
};

/// Calls f with `rows` as a constant of 1..kMost.
template <int kMost, class F>
HWY_INLINE void with_rows(int rows, F&& f) {
  if constexpr (kMost > 1)
    if (rows < kMost) return with_rows<kMost - 1>(rows, f);
  f(std::integral_constant<int, kMost>());
}

}  // namespace
#endif  // NVFP4_HAVE_LANES
}  // namespace nvfp4::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // NVFP4_GEMM_INL_H
