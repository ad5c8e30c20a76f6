// The exact mse search at high speed: integer costs decide almost every block, exact costs the
// rest.
//
// Why 126 scales need not be tried. Upwards: if 3.5 c >= amax, c uses magnitudes up to 3 (4 at a
// tie), and c · {0 … 3} is part of (c/2) · {0 … 6}. So c/2 costs no more, and it wins the tie. The
// code max(q0, 8) + 7, q0 that of E4M3(amax / 6), satisfies 3.5 c >= amax. Downwards: the cost of
// clipping alone, Σ w max(u - 6c, 0)², grows as c falls; once it exceeds the best cost, every
// smaller scale costs more. Rounding is monotonic, so both arguments survive it.
//
// The integer filter. Candidates are `top`, the largest code with 3.5 c < amax, and eight below.
// - y = round(u) is off by half a unit, so √cost is off by at most √16 / 2 = 2 units.
// - A code is found from y times a 16-bit reciprocal of c, which moves a threshold by less than one
//   unit (asserted in mse_tables.h). So only a tie can differ, and there both codes cost the same.
// - With h = 2q, Σ (y - qc)² = Σ y² - c Σ hy + c² Σ h² / 4, exact modulo 2^32. Candidates are
//   compared without Σ y², which they share.
// - A block is settled if √second - 2 > √best + 2 (relative slack 1e-5), clipping under the code
//   below the window costs more than the best, and 3.5 c >= amax for the code above the window.
// About 2 % of Gaussian blocks remain. Exact costs then decide among the candidates within the
// error bounds, and the exact search runs where the window does not suffice.
#if defined(NVFP4_MSE_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef NVFP4_MSE_INL_H
#undef NVFP4_MSE_INL_H
#else
#define NVFP4_MSE_INL_H
#endif

#include "backends/cpu/encode-inl.h"
#include "backends/cpu/mse_tables.h"

#if HWY_TARGET <= HWY_AVX3_DL  // Highway checks for VNNI but does not always enable it
HWY_PUSH_ATTRIBUTES(HWY_TARGET_STR ",avx512vnni")
#else
HWY_BEFORE_NAMESPACE();
#endif
namespace nvfp4::cpu::HWY_NAMESPACE {
#if NVFP4_HAVE_LANES

using I16 = hn::Repartition<std::int16_t, F32>;
using U16 = hn::Repartition<std::uint16_t, F32>;
using U8 = hn::Repartition<std::uint8_t, F32>;
using VI16 = hn::Vec<I16>;
using VU16 = hn::Vec<U16>;
using VU8 = hn::Vec<U8>;

/// Adds the products of the two halves of each 32-bit lane.
HWY_INLINE VI add_products(VI sum, VI16 a, VI16 b) {
#if HWY_TARGET <= HWY_AVX3_DL
  return VI{_mm512_dpwssd_epi32(sum.raw, a.raw, b.raw)};
#elif HWY_TARGET == HWY_NEON
  const int32x4_t low = vmull_s16(vget_low_s16(a.raw), vget_low_s16(b.raw));
  return hn::Add(sum, VI(vpaddq_s32(low, vmull_high_s16(a.raw, b.raw))));
#else
  VI unused = hn::Zero(I32());
  return hn::ReorderWidenMulAccumulate(I32(), a, b, sum, unused);
#endif
}

#if HWY_TARGET > HWY_AVX3_DL
/// Adds the products of the two bytes of each 16-bit lane; b < 128.
HWY_INLINE VI16 add_byte_products(VI16 sum, VU8 a, VU8 b) {
#if HWY_TARGET == HWY_NEON
  const uint16x8_t low = vmull_u8(vget_low_u8(a.raw), vget_low_u8(b.raw));
  const VU16 pairs(vpaddq_u16(low, vmull_high_u8(a.raw, b.raw)));
  return hn::Add(sum, hn::BitCast(I16(), pairs));
#elif HWY_TARGET == HWY_AVX3
  return hn::Add(sum, VI16{_mm512_maddubs_epi16(a.raw, b.raw)});
#elif HWY_TARGET == HWY_AVX2
  return hn::Add(sum, VI16{_mm256_maddubs_epi16(a.raw, b.raw)});
#else
  return hn::Add(sum, VI16{_mm_maddubs_epi16(a.raw, b.raw)});
#endif
}
#endif

/// Returns the table's entry for each lane.
HWY_INLINE VU lookup(const std::uint32_t* HWY_RESTRICT table, VU entry) {
#if HWY_TARGET <= HWY_AVX3
  return VU{_mm512_permutexvar_epi32(entry.raw, _mm512_load_si512(table))};
#elif HWY_TARGET == HWY_AVX2
  return VU{_mm256_permutevar8x32_epi32(_mm256_load_si256(reinterpret_cast<const __m256i*>(table)),
                                        entry.raw)};
#else
  alignas(64) std::uint32_t index[kLanes], value[kLanes];
  hn::Store(entry, U32(), index);
  for (std::size_t i = 0; i < kLanes; ++i) value[i] = table[index[i]];
  return hn::Load(U32(), value);
#endif
}

#if HWY_TARGET <= HWY_AVX3
/// In each 16 bytes, replaces those of `mask` by bytes of b at index `from`; the others come from
/// a.
HWY_INLINE __m512i merge_bytes(__m512i a, __mmask64 mask, __m512i b, __m128i from) {
  return _mm512_mask_shuffle_epi8(a, mask, b, _mm512_broadcast_i32x4(from));
}
#endif

/// Interleaves the low halves of the 32-bit lanes of a and b.
HWY_INLINE VU16 low_halves(VU a, VU b) {
#if HWY_TARGET <= HWY_AVX3
  return VU16{merge_bytes(a.raw, 0xCCCCCCCCCCCCCCCC, b.raw,
                          _mm_setr_epi8(0, 0, 0, 1, 0, 0, 4, 5, 0, 0, 8, 9, 0, 0, 12, 13))};
#else
  return hn::OddEven(hn::BitCast(U16(), hn::ShiftLeft<16>(b)), hn::BitCast(U16(), a));
#endif
}
HWY_INLINE VU8 low_bytes(VU16 a, VU16 b) {
#if HWY_TARGET <= HWY_AVX3
  return VU8{merge_bytes(a.raw, 0xAAAAAAAAAAAAAAAA, b.raw,
                         _mm_setr_epi8(0, 0, 0, 2, 0, 4, 0, 6, 0, 8, 0, 10, 0, 12, 0, 14))};
#else
  return hn::OddEven(hn::BitCast(U8(), hn::ShiftLeft<8>(b)), hn::BitCast(U8(), a));
#endif
}
/// Interleaves the high bytes of a >> kShift and b >> kShift.
template <int kShift>
HWY_INLINE VU8 high_bytes(VU16 a, VU16 b) {
#if HWY_TARGET <= HWY_AVX3
  if constexpr (kShift == 0)
    return VU8{merge_bytes(b.raw, 0x5555555555555555, a.raw,
                           _mm_setr_epi8(1, 0, 3, 0, 5, 0, 7, 0, 9, 0, 11, 0, 13, 0, 15, 0))};
#endif
  return hn::OddEven(hn::BitCast(U8(), hn::ShiftRight<kShift>(b)),
                     hn::BitCast(U8(), hn::ShiftRight<8 + kShift>(a)));
}

/// Returns twice the nearest E2M1 magnitudes of a and b, which are in units of 2^-11, or 2^-10 if
/// kHalved.
template <bool kHalved>
HWY_INLINE VU8 nearest_halves(VU16 a, VU16 b) {
#if HWY_TARGET <= HWY_AVX3_DL
  const Bytes64& table = kHalved ? kHalvesOfQuarters : kHalvesOfEighths;
  return VU8{_mm512_permutexvar_epi8(high_bytes<0>(a, b).raw, _mm512_load_si512(table.value))};
#else
  // Byte shuffles have 16 entries. From quarter 14 to 19 the magnitude is 4, above it is 6.
  const U8 d;
  const VU8 quarters = high_bytes < kHalved ? 0 : 1 > (a, b);
  const VU8 halves = hn::TableLookupBytes(hn::LoadDup128(d, kHalvesOfQuarters.value),
                                          hn::Min(quarters, hn::Set(d, 15)));
  const hn::RebindToSigned<U8> d8;
  const auto is_six = hn::Gt(hn::BitCast(d8, quarters), hn::Set(d8, 19));
  return hn::Add(halves, hn::IfThenElseZero(hn::RebindMask(d, is_six), hn::Set(d, 4)));
#endif
}

/// The filter's inputs: |x| in its units, and the candidates.
struct FilterInput {
  HWY_INLINE FilterInput() {}  // the implicit one would not be compiled for the target
  VU16 y[8];                   ///< two elements in each 32-bit lane
  VU8 low[4], high[4];         ///< bytes of y[2 j] and y[2 j + 1]
  VU squares;                  ///< Σ y² modulo 2^32
  VI top;                      ///< code of the highest candidate
  VU mantissa;                 ///< index in the tables
  VF amax;                     ///< in the filter's units
  hn::Mask<F32> ok;            ///< lanes for which the window and the units are valid; not for NaN
};

/// In these units candidates are exact, and |x| has an error of at most a half (and 0.001). So
/// √cost has an error of at most 2 (and 0.004).
HWY_INLINE FilterInput filter_input(const float* HWY_RESTRICT x, VF divisor) {
  FilterInput f;
  VF a[16];
  VI largest = hn::Zero(I32());
  HWY_UNROLL(16)
  for (int i = 0; i < 16; ++i) {
    a[i] = hn::Abs(row(x, i));
    largest = hn::Max(largest, signed_bits(bits(a[i])));
  }
  const VF amax = hn::Mul(hn::BitCast(F32(), largest), divisor);
  // E4M3 code of amax / 3.5, rounded down. Lanes without a valid code are not ok.
  const VI code = hn::Sub(signed_bits(hn::ShiftRight<20>(bits(hn::Mul(amax, set_f32(1 / 3.5f))))),
                          hn::Set(I32(), 120 << 3));
  f.top = hn::Min(hn::Max(code, hn::Set(I32(), kFirstTop)), hn::Set(I32(), kLastTop));
  f.mantissa = hn::And(hn::BitCast(U32(), f.top), set_u32(7));
  const VU exponent = hn::ShiftRight<3>(hn::BitCast(U32(), f.top));
  const VF unit = floats(hn::ShiftLeft<23>(hn::Sub(set_u32(127 + 7 + kUnitBits), exponent)));
  f.amax = hn::Mul(amax, unit);
  const auto in_range =
      hn::And(hn::RebindMask(F32(), hn::Eq(f.top, code)), hn::Lt(divisor, set_f32(0x1p100f)));
  f.ok = hn::And(in_range, hn::Le(f.amax, floats(lookup(kReach.value, f.mantissa))));

  // The FP32 adder leaves the nearest integer in the low half.
  const VF factor = hn::Mul(divisor, unit), magic = set_f32(0x1p23f);
  VI squares = hn::Zero(I32());
  HWY_UNROLL(4)
  for (int j = 0; j < 4; ++j) {
    for (int i = 2 * j; i < 2 * j + 2; ++i) {
      const VU even = bits(hn::MulAdd(a[2 * i], factor, magic));
      const VU odd = bits(hn::MulAdd(a[2 * i + 1], factor, magic));
      f.y[i] = low_halves(even, odd);
      squares = add_products(squares, hn::BitCast(I16(), f.y[i]), hn::BitCast(I16(), f.y[i]));
    }
    f.low[j] = low_bytes(f.y[2 * j], f.y[2 * j + 1]);
    f.high[j] = high_bytes<0>(f.y[2 * j], f.y[2 * j + 1]);
  }
  f.squares = hn::BitCast(U32(), squares);
  return f;
}

/// Sums over a block's elements for one candidate.
struct CandidateSums {
#if HWY_TARGET <= HWY_AVX3_DL
  HWY_INLINE CandidateSums() : square(hn::Zero(I32())), low(square), high(square) {}
  VI square, low, high;
  HWY_INLINE void add(const FilterInput& f, int j, VU8 h) {
    square = VI{_mm512_dpbusd_epi32(square.raw, h.raw, h.raw)};
    low = VI{_mm512_dpbusd_epi32(low.raw, f.low[j].raw, h.raw)};
    high = VI{_mm512_dpbusd_epi32(high.raw, h.raw, f.high[j].raw)};
  }
  HWY_INLINE VI hh() const { return square; }
  HWY_INLINE VI hy() const { return hn::Add(low, hn::ShiftLeft<8>(high)); }
#else
  HWY_INLINE CandidateSums() : square(hn::Zero(I16())), low(square), high(square) {}
  VI16 square, low, high;  // 8 · 12 · 255 fits
  HWY_INLINE void add(const FilterInput& f, int j, VU8 h) {
    square = add_byte_products(square, h, h);
    high = add_byte_products(high, f.high[j], h);
    low = add_byte_products(low, f.low[j], h);
  }
  HWY_INLINE VI hh() const { return add_products(hn::Zero(I32()), square, hn::Set(I16(), 1)); }
  HWY_INLINE VI hy() const {
    return add_products(add_products(hn::Zero(I32()), high, hn::Set(I16(), 256)), low,
                        hn::Set(I16(), 1));
  }
#endif
};

/// Returns (Σ (y - q c)² - Σ y²) / 4 modulo 2^32, with the candidate's index in the low bits, which
/// are zero. The value is between -2^32 and 0, so the lowest key has the lowest cost.
HWY_INLINE VU candidate_key(const FilterInput& f, const CandidateSums& sums, int index) {
  const VI factor = signed_bits(lookup(kCandidates[index].factor.value, f.mantissa));
  const VI sum = add_products(sums.hy(), hn::BitCast(I16(), sums.hh()), hn::BitCast(I16(), factor));
  return hn::BitCast(U32(), hn::Or(hn::Mul(factor, sum), hn::Set(I32(), kCandidates[index].index)));
}
inline constexpr std::uint32_t kIndexMask = 31;

/// Returns 1 / c of a candidate.
HWY_INLINE VU16 candidate_reciprocal(const FilterInput& f, int index) {
  return hn::BitCast(U16(), lookup(kCandidates[index].reciprocal.value, f.mantissa));
}

/// Calls add(index, key) for all candidates, in another order. Quotients of one candidate overlap
/// with sums of the previous one. Prefetches batch.next, like pack_codes().
template <class Keys>
HWY_INLINE void add_keys(const FilterInput& f, const Batch<16>& batch, Keys& keys) {
  // The first candidate is half of the last one.
  VU8 h[4], of_half[4];
  {
    const VU16 r = candidate_reciprocal(f, kLast);
    HWY_UNROLL(4)
    for (int j = 0; j < 4; ++j) {
      const VU16 a = hn::MulHigh(f.y[2 * j], r), b = hn::MulHigh(f.y[2 * j + 1], r);
      h[j] = nearest_halves<false>(a, b);
      of_half[j] = nearest_halves<true>(a, b);
    }
  }
  CandidateSums before;
  HWY_UNROLL(4)
  for (int j = 0; j < 4; ++j) before.add(f, j, of_half[j]);
  int index = kLast, index_before = 0;
  for (int next = 1; next < kLast; ++next) {
    batch.fetch_next(2 * next - 2);
    batch.fetch_next(2 * next - 1);
    const VU16 r = candidate_reciprocal(f, next);
    CandidateSums sums;
    HWY_UNROLL(4)
    for (int j = 0; j < 4; ++j) {
      sums.add(f, j, h[j]);
      h[j] = nearest_halves<false>(hn::MulHigh(f.y[2 * j], r), hn::MulHigh(f.y[2 * j + 1], r));
      if (j == 1) keys.add(index_before, candidate_key(f, before, index_before));
    }
    before = sums;
    index_before = index;
    index = next;
  }
  batch.fetch_next(2 * kLast - 2);
  batch.fetch_next(2 * kLast - 1);
  keys.add(index_before, candidate_key(f, before, index_before));
  CandidateSums last;
  HWY_UNROLL(4)
  for (int j = 0; j < 4; ++j) last.add(f, j, h[j]);
  keys.add(index, candidate_key(f, last, index));
}

/// Returns the cost of a key as FP32.
HWY_INLINE VF cost_of(const FilterInput& f, VU key) {
  const VU cost = hn::Add(f.squares, hn::ShiftLeft<2>(hn::AndNot(set_u32(kIndexMask), key)));
  return hn::ConvertTo(F32(), signed_bits(cost));
}

/// Returns an upper bound of √cost for an integer cost, with slack for the rounding of FP32 costs.
HWY_INLINE VF largest_root(VF cost) {
  return hn::Mul(hn::Add(hn::Sqrt(cost), set_f32(2.005f)), set_f32(1.00001f));
}

/// Returns the lanes where no scale below the window can have a root of `root` or less.
HWY_INLINE hn::Mask<F32> clips_below(const FilterInput& f, VF root) {
  return hn::Gt(hn::Sub(f.amax, floats(lookup(kSixTimesBelow.value, f.mantissa))), root);
}

struct FilterResult {
  VU scale;               ///< cheapest code by integer costs
  hn::Mask<F32> certain;  ///< lanes where it is proven to be the cheapest
};

struct TwoLowest {
  HWY_INLINE TwoLowest() : best(set_u32(0xFFFFFFFF)), second(set_u32(0xFFFFFFFF)) {}
  VU best, second;
  HWY_INLINE void add(int, VU key) {
    second = hn::Min(second, hn::Max(key, best));
    best = hn::Min(best, key);
  }
};

HWY_INLINE FilterResult filter_result(const FilterInput& f, const TwoLowest& keys) {
  const VF root = largest_root(cost_of(f, keys.best));
  const VF limit = hn::Add(root, set_f32(2.01f));  // the root of the second must exceed it
  const auto narrowed = hn::And(f.ok, clips_below(f, root));
  const VI offset =
      hn::Add(signed_bits(hn::And(keys.best, set_u32(kIndexMask))), hn::Set(I32(), kFirstOffset));
  return {hn::BitCast(U32(), hn::Add(f.top, offset)),
          hn::And(narrowed, hn::Gt(cost_of(f, keys.second), hn::Mul(limit, limit)))};
}

struct AllKeys {
  HWY_INLINE AllKeys() {}  // see FilterInput()
  VU key[kLast + 1];
  HWY_INLINE void add(int index, VU k) { key[index] = k; }
};

/// Encodes blocks that the filter could not decide although the window is valid. It computes the
/// exact costs of candidates whose integer costs are close to the lowest. It also tries codes below
/// the window that may win.
inline HWY_NOINLINE void encode_undecided(Batch<16>& batch) {
  const VF divisor = hn::Load(F32(), batch.divisor);
  const FilterInput f = filter_input(batch.x, divisor);
  AllKeys keys;
  add_keys(f, batch, keys);
  VU lowest = keys.key[0];
  for (int i = 1; i <= kLast; ++i) lowest = hn::Min(lowest, keys.key[i]);
  const VF limit = hn::Add(largest_root(cost_of(f, lowest)), set_f32(2.01f));
  VI pending = hn::Zero(I32());
  for (int i = 0; i <= kLast; ++i) {
    const auto close = hn::Le(cost_of(f, keys.key[i]), hn::Mul(limit, limit));
    pending =
        hn::Or(pending, hn::IfThenElseZero(hn::RebindMask(I32(), close), hn::Set(I32(), 1 << i)));
  }

  alignas(64) float u[16 * kLanes];
  cost_magnitudes(batch, u);
  VF best_cost = set_f32(FLT_MAX);
  VI best = f.top;
  // In ascending order, so that a tie keeps the lower code.
  while (!hn::AllTrue(I32(), hn::Eq(pending, hn::Zero(I32())))) {
    const VI bit = hn::And(pending, hn::Neg(pending));
    const VU exponent = hn::ShiftRight<23>(bits(hn::ConvertTo(F32(), bit)));
    const auto some = hn::Ne(bit, hn::Zero(I32()));
    const VI next =
        hn::Add(f.top, hn::Sub(signed_bits(exponent), hn::Set(I32(), 127 - kFirstOffset)));
    const VI code = hn::IfThenElse(some, next, best);
    const VF exact = batch_cost<16, false>(u, nullptr, e4m3_decode(hn::BitCast(U32(), code)));
    const auto better = hn::Lt(exact, best_cost);
    best = hn::IfThenElse(hn::RebindMask(I32(), better), code, best);
    best_cost = hn::Min(best_cost, exact);
    pending = hn::Sub(pending, bit);
  }
  VF amax = row(u, 0);
  for (int i = 1; i < 16; ++i) amax = hn::Max(amax, row(u, i));
  // Downwards, as in mse_scale_exact(). Finished lanes try codes that cannot win, and code 1 again.
  for (VI next = hn::Add(f.top, hn::Set(I32(), kFirstOffset - 1));;
       next = hn::Sub(next, hn::Set(I32(), 1))) {
    const VI code = hn::Max(next, hn::Set(I32(), 1));
    const VF scale = e4m3_decode(hn::BitCast(U32(), code));
    const auto may_win = hn::Le(clip_cost<16, false>(u, nullptr, amax, scale), best_cost);
    if (hn::AllFalse(I32(), hn::And(hn::RebindMask(I32(), may_win), hn::Eq(code, next)))) break;
    const VF exact = batch_cost<16, false>(u, nullptr, scale);
    const auto better = hn::Le(exact, best_cost);
    best = hn::IfThenElse(hn::RebindMask(I32(), better), code, best);
    best_cost = hn::Min(best_cost, exact);
  }
  batch_amax<16>(batch.x);  // removes the signs of NaN
  set_scale(batch, hn::BitCast(U32(), best));
  pack_codes(batch);
}

HWY_INLINE std::uint64_t lane_bits(hn::Mask<F32> mask) {
  std::uint64_t result = 0;
  hn::StoreMaskBits(F32(), mask, reinterpret_cast<std::uint8_t*>(&result));
  return result & ((1ull << kLanes) - 1);
}

/// Lanes of a batch without a decided scale.
struct OpenLanes {
  std::uint64_t undecided;  ///< for encode_undecided()
  std::uint64_t special;    ///< the window is not valid: for encode_group()
};

/// Encodes `n` batches except for the lanes in open[g]. Steps of all batches are interleaved,
/// because a batch's steps depend on each other.
inline HWY_NOINLINE void encode_group_mse(Batch<16>* batches, int n, OpenLanes* open) {
  FilterInput f[kGroup];
  TwoLowest keys[kGroup];
  for (int g = 0; g < n; ++g)
    f[g] = filter_input(batches[g].x, hn::Load(F32(), batches[g].divisor));
  for (int g = 0; g < n; ++g) {
    TwoLowest k;
    add_keys(f[g], batches[g], k);
    keys[g] = k;
  }
  for (int g = 0; g < n; ++g) {
    const FilterResult found = filter_result(f[g], keys[g]);
    set_scale(batches[g], found.scale);
    const std::uint64_t ok = lane_bits(f[g].ok);
    open[g] = {ok & ~lane_bits(found.certain), ~ok & ((1ull << kLanes) - 1)};
  }
  for (int g = 0; g < n; ++g) pack_codes<false>(batches[g]);
}

#endif  // NVFP4_HAVE_LANES
}  // namespace nvfp4::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // NVFP4_MSE_INL_H
