// The exact mse search at speed: integer costs settle nearly every block, exact costs the rest.
// docs/numerics.md, "The integer filter", has the error bounds used here.
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

/// Adds to each 32-bit lane the squares of its two halves.
HWY_INLINE VI add_squares(VI sum, VI16 d) {
#if HWY_TARGET <= HWY_AVX3_DL
  return VI{_mm512_dpwssd_epi32(sum.raw, d.raw, d.raw)};
#elif HWY_TARGET == HWY_NEON
  const int32x4_t low = vmull_s16(vget_low_s16(d.raw), vget_low_s16(d.raw));
  return hn::Add(sum, VI(vpaddq_s32(low, vmull_high_s16(d.raw, d.raw))));
#else
  VI unused = hn::Zero(I32());
  return hn::ReorderWidenMulAccumulate(I32(), d, d, sum, unused);
#endif
}

/// Nearest integer, ties to even; out of range it is any number.
HWY_INLINE VU nearest_int(VF v) {
#if HWY_TARGET <= HWY_AVX3  // Highway's spends four more instructions on saturation
  return VU{_mm512_cvtps_epi32(v.raw)};
#elif HWY_TARGET == HWY_AVX2
  return VU{_mm256_cvtps_epi32(v.raw)};
#elif HWY_TARGET == HWY_SSE4
  return VU{_mm_cvtps_epi32(v.raw)};
#else
  return hn::BitCast(U32(), hn::NearestInt(v));
#endif
}

/// The table's entry for each lane.
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

/// q · candidate in fixed point, q the E2M1 magnitude that y / candidate rounds to.
HWY_INLINE VU16 nearest_product(VU16 y, VU16 reciprocal, VU16 candidate) {
  const VU16 v = hn::MulHigh(y, reciprocal);  // its high byte counts eighths
#if HWY_TARGET <= HWY_AVX3_DL
  const __m512i table = _mm512_load_si512(kMagnitudeOfEighths.value);
  const VU16 q{_mm512_maskz_permutexvar_epi8(0xAAAAAAAAAAAAAAAA, v.raw, table)};
  return hn::MulHigh(q, candidate);
#else
  const U16 d;
  const VU16 quarters = hn::ShiftRight<9>(v);
  const VU16 low = hn::Min(quarters, hn::Set(d, 15));
  const VU16 halves = hn::BitCast(
      d,
      hn::TableLookupBytes(hn::LoadDup128(U8(), kHalvesOfQuarters.value), hn::BitCast(U8(), low)));
  const auto is_six = hn::Gt(hn::BitCast(I16(), quarters), hn::Set(I16(), 19));
  const VI16 extra = hn::And(hn::VecFromMask(I16(), is_six), hn::Set(I16(), 4));
  // The low 16 bits of the product are all of it.
  return hn::BitCast(d, hn::Mul(hn::Add(hn::BitCast(I16(), halves), extra),
                                hn::BitCast(I16(), hn::ShiftRight<4>(candidate))));
#endif
}

/// What the filter works on: |x| in its units, in pairs, and where the candidates lie.
struct FilterInput {
  VU16 y[8];
  VI top;            ///< code of the highest candidate
  VU mantissa;       ///< entry of the tables
  VF amax;           ///< in units
  hn::Mask<F32> ok;  ///< lanes where the window and the units hold; not for a NaN
};

/// In these units the candidates are exact and |x| is off by at most a half, so that √cost is off
/// by at most 2.
HWY_INLINE FilterInput filter_input(const float* HWY_RESTRICT x, VF divisor) {
  FilterInput f;
  VI largest = hn::Zero(I32());
  HWY_UNROLL(16)
  for (int i = 0; i < 16; ++i) largest = hn::Max(largest, signed_bits(bits(hn::Abs(row(x, i)))));
  const VF amax = hn::Mul(hn::BitCast(F32(), largest), divisor);
  // E4M3 code of amax / 3.5, rounded down. What is no such code ends as a lane that is not ok.
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

  // A power of two: the products are those of cost_magnitude(), scaled.
  const VF factor = hn::Mul(divisor, unit);
  HWY_UNROLL(8)
  for (int i = 0; i < 8; ++i) {
    const auto units = [&](int j) { return nearest_int(hn::Mul(hn::Abs(row(x, j)), factor)); };
    f.y[i] = hn::BitCast(U16(), hn::Or(units(2 * i), hn::ShiftLeft<16>(units(2 * i + 1))));
  }
  return f;
}

HWY_INLINE VI integer_cost(const CandidateTables& tables, const FilterInput& f) {
  const VU16 reciprocal = hn::BitCast(U16(), lookup(tables.reciprocal.value, f.mantissa));
  const VU16 candidate = hn::BitCast(U16(), lookup(tables.candidate.value, f.mantissa));
  VI sum0 = hn::Zero(I32()), sum1 = hn::Zero(I32());
  HWY_UNROLL(4)
  for (int i = 0; i < 8; i += 2) {
    const VU16 p0 = nearest_product(f.y[i], reciprocal, candidate);
    const VU16 p1 = nearest_product(f.y[i + 1], reciprocal, candidate);
    sum0 = add_squares(sum0, hn::BitCast(I16(), hn::Sub(f.y[i], p0)));
    sum1 = add_squares(sum1, hn::BitCast(I16(), hn::Sub(f.y[i + 1], p1)));
  }
  return hn::Add(sum0, sum1);
}

/// √cost of what has this integer cost is at most this, with slack for the rounding of FP32 costs.
HWY_INLINE VF largest_root(VI cost) {
  return hn::Mul(hn::Add(hn::Sqrt(hn::ConvertTo(F32(), cost)), set_f32(2.005f)), set_f32(1.00001f));
}

/// Lanes where no scale below the window can have a root of `root` or less.
HWY_INLINE hn::Mask<F32> clips_below(const FilterInput& f, VF root) {
  return hn::Gt(hn::Sub(f.amax, floats(lookup(kSixTimesBelow.value, f.mantissa))), root);
}

struct FilterResult {
  VU scale;                ///< the cheapest code by integer costs
  hn::Mask<F32> certain;   ///< lanes where it is proven to be the cheapest
  hn::Mask<F32> narrowed;  ///< lanes where the cheapest is proven to be among the candidates
};

HWY_INLINE FilterResult mse_filter(const float* HWY_RESTRICT x, VF divisor) {
  const FilterInput f = filter_input(x, divisor);
  VI best = hn::Set(I32(), 0x7FFFFFFF), second = best, best_offset = hn::Zero(I32());
  VI offset = hn::Set(I32(), kFirstOffset);
  for (const CandidateTables& tables : kCandidates) {  // unrolled it would spill
    const VI cost = integer_cost(tables, f);
    const auto better = hn::Lt(cost, best);
    second = hn::Min(second, hn::Max(cost, best));
    best = hn::Min(best, cost);
    best_offset = hn::IfThenElse(better, offset, best_offset);
    offset = hn::Add(offset, hn::Set(I32(), 1));
  }
  const VF root = largest_root(best);
  const VF runner_up = hn::Sub(hn::Sqrt(hn::ConvertTo(F32(), second)), set_f32(2.005f));
  const auto narrowed = hn::And(f.ok, clips_below(f, root));
  return {hn::BitCast(U32(), hn::Add(f.top, best_offset)),
          hn::And(narrowed, hn::Gt(runner_up, root)), narrowed};
}

/// Scales of blocks that the filter has narrowed: the exact cost of those candidates alone whose
/// integer costs are too close to the lowest to tell.
inline HWY_NOINLINE void encode_narrowed(Batch<16>& batch) {
  const VF divisor = hn::Load(F32(), batch.divisor);
  const FilterInput f = filter_input(batch.x, divisor);
  constexpr int kCount = kLastOffset - kFirstOffset + 1;
  VI cost[kCount], lowest = hn::Set(I32(), 0x7FFFFFFF);
  for (int i = 0; i < kCount; ++i) {
    cost[i] = integer_cost(kCandidates[i], f);
    lowest = hn::Min(lowest, cost[i]);
  }
  const VF limit = hn::Add(largest_root(lowest), set_f32(2.01f));
  VI pending = hn::Zero(I32());
  for (int i = 0; i < kCount; ++i) {
    const auto close = hn::Le(hn::Sqrt(hn::ConvertTo(F32(), cost[i])), limit);
    pending =
        hn::Or(pending, hn::IfThenElseZero(hn::RebindMask(I32(), close), hn::Set(I32(), 1 << i)));
  }

  alignas(64) float u[16 * kLanes];
  cost_magnitudes(batch, u);
  VF best_cost = set_f32(FLT_MAX);
  VI best = f.top;
  // From below, so that a tie keeps the lower code.
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
  batch_amax<16>(batch.x);  // removes the signs of NaN
  set_scale(batch, hn::BitCast(U32(), best));
  pack_codes(batch);
}

HWY_INLINE std::uint64_t lane_bits(hn::Mask<F32> mask) {
  std::uint64_t result = 0;
  hn::StoreMaskBits(F32(), mask, reinterpret_cast<std::uint8_t*>(&result));
  return result & ((1ull << kLanes) - 1);
}

/// Lanes of a batch whose scale is not decided yet.
struct OpenLanes {
  std::uint64_t narrowed;  ///< for encode_narrowed()
  std::uint64_t other;     ///< for encode_group()
};

/// Encodes `n` batches but for the lanes in open[g].
inline HWY_NOINLINE void encode_group_mse(Batch<16>* batches, int n, OpenLanes* open) {
  for (int g = 0; g < n; ++g) {
    const FilterResult found = mse_filter(batches[g].x, hn::Load(F32(), batches[g].divisor));
    set_scale(batches[g], found.scale);
    const std::uint64_t narrowed = lane_bits(found.narrowed);
    open[g] = {narrowed & ~lane_bits(found.certain), ~narrowed & ((1ull << kLanes) - 1)};
  }
  for (int g = 0; g < n; ++g) pack_codes(batches[g]);
}

#endif  // NVFP4_HAVE_LANES
}  // namespace nvfp4::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // NVFP4_MSE_INL_H
