// Integer dot products of doubled codes: four steps of four elements for every row of a panel.
#if defined(NVFP4_DOT_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef NVFP4_DOT_INL_H
#undef NVFP4_DOT_INL_H
#else
#define NVFP4_DOT_INL_H
#endif

#include "backends/cpu/gemm-inl.h"

#if HWY_ARCH_ARM_A64
#include "platform/process.h"
#endif

#if HWY_TARGET <= HWY_AVX3_DL  // Highway checks for VNNI but does not always enable it
HWY_PUSH_ATTRIBUTES(HWY_TARGET_STR ",avx512vnni")
#else
HWY_BEFORE_NAMESPACE();
#endif
namespace nvfp4::cpu::HWY_NAMESPACE {
#if NVFP4_HAVE_LANES
namespace {

using U8 = hn::Repartition<std::uint8_t, F32>;
using VU8 = hn::Vec<U8>;

/// The bias of doubled codes. x86 multiplies unsigned by signed bytes. So weights include
/// kCodeBias, and sums start at -kCodeBias times the sum of the row of x.
inline constexpr int kCodeBias = HWY_ARCH_X86 ? 12 : 0;
/// The sixteen doubled codes, four times.
struct WeightTable {
  alignas(64) std::uint8_t value[64];
};
inline constexpr WeightTable kWeightTable = [] {
  WeightTable t{};
  for (int i = 0; i < 64; ++i) {
    const float doubled = 2 * E2M1{static_cast<std::uint8_t>(i % 16)}.to_float();
    t.value[i] = static_cast<std::uint8_t>(static_cast<int>(doubled) + kCodeBias);
  }
  return t;
}();

/// Returns the elements of the low and of the high nibbles of each word.
HWY_INLINE void decode_codes(VU words, VU8& low, VU8& high) {
#if HWY_TARGET <= HWY_AVX3_DL  // Highway checks for VNNI but does not always enable it
  // The table repeats every 16 entries, so the bits above the nibble do not matter.
  const __m512i table = _mm512_load_si512(kWeightTable.value);
  low = VU8{_mm512_permutexvar_epi8(words.raw, table)};
  high = VU8{_mm512_permutexvar_epi8(_mm512_srli_epi16(words.raw, 4), table)};
#else
  const U8 d;
  const hn::Repartition<std::uint16_t, F32> d16;
  const VU8 mask = hn::Set(d, 0x0F);
  const VU8 table = hn::LoadDup128(d, kWeightTable.value);
  const VU8 bytes = hn::BitCast(d, words);
  low = hn::TableLookupBytes(table, hn::And(bytes, mask));
  high = hn::TableLookupBytes(
      table, hn::And(hn::BitCast(d, hn::ShiftRight<4>(hn::BitCast(d16, words))), mask));
#endif
}

/// Loads vector v of a block's rows: w[2 j] and w[2 j + 1] are the even and odd elements of half j.
HWY_INLINE void load_block(const std::uint8_t* codes, const std::uint8_t* scales, int v,
                           VU8 (&w)[4], VF& scale) {
  decode_codes(load_words(codes + v * kCodeStep), w[0], w[1]);
  decode_codes(load_words(codes + kHalfBlock + v * kCodeStep), w[2], w[3]);
  scale = load_scales(scales + v * kScaleStep);
}

/// Four codes of x.
struct Word {
  std::int8_t codes[4];
};
HWY_INLINE std::int32_t load_word(const Word* word) {
  return __builtin_bit_cast(std::int32_t, *word);
}

/// Computes start + Σ over the four steps of w · x in each 32-bit lane.
#if HWY_TARGET <= HWY_AVX3_DL  // Highway checks for VNNI but does not always enable it
struct Dot {
  static constexpr int kTogether = 3;
  /// Computes q[t][j] = start of row t + its products with w[j]. Chains of several rows are
  /// interleaved, because each step waits for the previous one.
  template <int kRows, int kWide, class WordAt>
  static HWY_INLINE void dots(const VU8 (&w)[kWide][4], VI (&q)[kRows][kWide], WordAt word) {
    HWY_UNROLL(4)
    for (int i = 0; i < 4; ++i) HWY_UNROLL(8)
    for (int t = 0; t < kRows; ++t) {
      if constexpr (kWide == 1) {  // the compiler would emit a separate broadcast
        asm("vpdpbusd %2%{1to16%}, %1, %0"
            : "+v"(q[t][0].raw)
            : "v"(w[0][i].raw), "m"(*word(t, i)));
        continue;
      }
      const __m512i x = _mm512_set1_epi32(load_word(word(t, i)));
      HWY_UNROLL(2)
      for (int j = 0; j < kWide; ++j)
        q[t][j].raw = _mm512_dpbusd_epi32(q[t][j].raw, w[j][i].raw, x);
    }
  }
};
#elif HWY_ARCH_X86
#if HWY_TARGET <= HWY_AVX3
#define NVFP4_X86(op) _mm512_##op
#elif HWY_TARGET <= HWY_AVX2
#define NVFP4_X86(op) _mm256_##op
#else
#define NVFP4_X86(op) _mm_##op
#endif
struct OneDot {
  // The 16-bit sums have at most 8 products of 24 · 12.
  static HWY_INLINE VI dot(const VU8 (&w)[4], VI start, const VI (&x)[4]) {
    const auto a = NVFP4_X86(add_epi16)(NVFP4_X86(maddubs_epi16)(w[0].raw, x[0].raw),
                                        NVFP4_X86(maddubs_epi16)(w[1].raw, x[1].raw));
    const auto b = NVFP4_X86(add_epi16)(NVFP4_X86(maddubs_epi16)(w[2].raw, x[2].raw),
                                        NVFP4_X86(maddubs_epi16)(w[3].raw, x[3].raw));
    const auto ones = NVFP4_X86(set1_epi16)(1);
    return hn::Add(start, VI{NVFP4_X86(madd_epi16)(NVFP4_X86(add_epi16)(a, b), ones)});
  }
};
#undef NVFP4_X86
#elif HWY_ARCH_ARM_A64
struct OneDot {
  static HWY_INLINE VI dot(const VU8 (&w)[4], VI start, const VI (&x)[4]) {
    VI sum = start;
    for (int i = 0; i < 4; ++i) {
      const int8x16_t a = vreinterpretq_s8_u8(w[i].raw), b = vreinterpretq_s8_s32(x[i].raw);
      const int16x8_t low = vmull_s8(vget_low_s8(a), vget_low_s8(b));
      sum.raw = vpadalq_s16(sum.raw, vpaddq_s16(low, vmull_high_s8(a, b)));
    }
    return sum;
  }
};
/// Uses the dotprod extension, which the compiler must not use elsewhere.
struct OneDotProd {
  static HWY_INLINE VI dot(const VU8 (&w)[4], VI start, const VI (&x)[4]) {
    VI sum = start;
    for (int i = 0; i < 4; ++i)
      asm(".arch armv8.2-a+crypto+dotprod\n\tsdot %0.4s, %1.16b, %2.16b"
          : "+w"(sum.raw)
          : "w"(w[i].raw), "w"(x[i].raw));
    return sum;
  }
};
#else  // 32-bit ARM and others: four products of signed bytes, without special instructions
struct OneDot {
  static HWY_INLINE VI dot(const VU8 (&w)[4], VI start, const VI (&x)[4]) {
    VI sum = start;
    for (int i = 0; i < 4; ++i) {
      const VI a = hn::BitCast(I32(), w[i]);
      sum = hn::Add(sum, hn::Add(hn::Add(product<24>(a, x[i]), product<16>(a, x[i])),
                                 hn::Add(product<8>(a, x[i]), product<0>(a, x[i]))));
    }
    return sum;
  }
  template <int kLeft>
  static HWY_INLINE VI product(VI a, VI b) {
    return hn::Mul(hn::ShiftRight<24>(hn::ShiftLeft<kLeft>(a)),
                   hn::ShiftRight<24>(hn::ShiftLeft<kLeft>(b)));
  }
};
#endif

#if HWY_TARGET > HWY_AVX3_DL
/// Computes one row after the other.
template <class One>
struct RowByRow {
  static constexpr int kTogether = 1;
  template <int kRows, int kWide, class WordAt>
  static HWY_INLINE void dots(const VU8 (&w)[kWide][4], VI (&q)[kRows][kWide], WordAt word) {
    HWY_UNROLL(8)
    for (int t = 0; t < kRows; ++t) {
      const VI x[4] = {hn::Set(I32(), load_word(word(t, 0))), hn::Set(I32(), load_word(word(t, 1))),
                       hn::Set(I32(), load_word(word(t, 2))),
                       hn::Set(I32(), load_word(word(t, 3)))};
      HWY_UNROLL(2)
      for (int j = 0; j < kWide; ++j) q[t][j] = One::dot(w[j], q[t][j], x);
    }
  }
};
using Dot = RowByRow<OneDot>;
#if HWY_ARCH_ARM_A64
using DotProd = RowByRow<OneDotProd>;
#endif
#endif

/// Calls f with the fastest dot products of this CPU.
template <class F>
auto with_dot(F&& f) {
#if HWY_ARCH_ARM_A64
  static const bool has = platform::has_dot_products();
  if (has) return f(DotProd());
#endif
  return f(Dot());
}

}  // namespace
#endif  // NVFP4_HAVE_LANES
}  // namespace nvfp4::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // NVFP4_DOT_INL_H
