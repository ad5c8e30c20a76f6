// The block formulas of quantizers/encode_block.h for kLanes blocks at a time.
#if defined(NVFP4_ENCODE_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef NVFP4_ENCODE_INL_H
#undef NVFP4_ENCODE_INL_H
#else
#define NVFP4_ENCODE_INL_H
#endif

#include <cfloat>

#include "backends/cpu/lanes-inl.h"
#include "quantizers/encode_block.h"

HWY_BEFORE_NAMESPACE();
namespace nvfp4::cpu::HWY_NAMESPACE {
#if NVFP4_HAVE_LANES

/// kLanes blocks of B elements with their scales and codes. Rows have kLanes values; a lane is a
/// block. kPairs: x keeps its layout in memory, two BF16 elements in each lane.
template <int B, bool kPairs = false>
struct Batch {
  static constexpr int kRows = kPairs ? B / 2 : B;
  alignas(64) std::conditional_t<kPairs, std::uint32_t, float> x[kRows * kLanes];
  alignas(64) float divisor[kLanes];
  alignas(64) float multiplier[kLanes];              // 1 / divisor
  alignas(64) float weights[B * kLanes];             // set only with weights
  alignas(64) std::uint32_t packed[B / 8 * kLanes];  // eight codes a word, the first one lowest
  alignas(64) std::uint32_t scale[kLanes];
  alignas(64) float factor[kLanes];
  // The data that is read next: a cache line at each i · next_step, i < kRows.
  const void* next = x;
  std::int64_t next_step = 0;

  HWY_INLINE void fetch_next(int i) const {
    hwy::Prefetch(static_cast<const std::byte*>(next) + i * next_step);
  }
  HWY_INLINE VF element(int i) const {
    if constexpr (kPairs) {
      const VU pair = hn::Load(U32(), x + static_cast<std::size_t>(i / 2) * kLanes);
      return i % 2 == 0 ? bf16_low(pair) : bf16_high(pair);
    } else {
      return hn::Load(F32(), x + static_cast<std::size_t>(i) * kLanes);
    }
  }
};

/// Number of batches in flight. While one waits for a division or a chain of roundings, others
/// proceed.
inline constexpr int kGroup = 4;

HWY_INLINE VF row(const float* p, int i) {
  return hn::Load(F32(), p + static_cast<std::size_t>(i) * kLanes);
}

/// Same as batch_amax(), for blocks with NaN.
template <int B>
HWY_NOINLINE VF batch_amax_of_numbers(float* HWY_RESTRICT x) {
  VF amax = hn::Zero(F32());
  for (int i = 0; i < B; ++i) {
    const VF a = hn::Abs(row(x, i));
    const auto is_nan = hn::IsNaN(a);
    hn::Store(hn::IfThenElse(is_nan, a, row(x, i)), F32(),
              x + static_cast<std::size_t>(i) * kLanes);
    amax = hn::IfThenElse(hn::Gt(a, amax), a, amax);
  }
  return amax;
}

/// Returns the largest magnitude of each block, ignoring NaN. The sign of a NaN is removed from x,
/// so that the encoder gives +6.
template <int B>
HWY_INLINE VF batch_amax(float* HWY_RESTRICT x) {
  VI largest = hn::Zero(I32());
  HWY_UNROLL(16)
  for (int i = 0; i < B; ++i) largest = hn::Max(largest, signed_bits(bits(hn::Abs(row(x, i)))));
  if (HWY_UNLIKELY(!hn::AllFalse(I32(), hn::Gt(largest, hn::Set(I32(), 0x7F800000)))))
    return batch_amax_of_numbers<B>(x);
  return hn::BitCast(F32(), largest);
}

using U16 = hn::Repartition<std::uint16_t, F32>;
using VU16 = hn::Vec<U16>;

HWY_INLINE VU16 pair_row(const std::uint32_t* p, int i) {
  return hn::BitCast(U16(), hn::Load(U32(), p + static_cast<std::size_t>(i) * kLanes));
}

/// Returns the larger of each pair of BF16 magnitudes.
HWY_INLINE VF larger_of_pairs(VU16 v) {
  const VU pair = hn::BitCast(U32(), v);
  return floats(hn::Max(bits(bf16_low(pair)), bits(bf16_high(pair))));
}

template <int B>
HWY_NOINLINE VF batch_amax_of_numbers(std::uint32_t* HWY_RESTRICT x) {
  VU16 amax = hn::Zero(U16());
  for (int i = 0; i < B / 2; ++i) {
    const VU16 a = hn::And(pair_row(x, i), hn::Set(U16(), 0x7FFF));
    const auto is_nan = hn::Gt(a, hn::Set(U16(), 0x7F80));
    hn::Store(hn::BitCast(U32(), hn::IfThenElse(is_nan, a, pair_row(x, i))), U32(),
              x + static_cast<std::size_t>(i) * kLanes);
    amax = hn::Max(amax, hn::IfThenZeroElse(is_nan, a));
  }
  return larger_of_pairs(amax);
}

/// Same as batch_amax(), for pairs of elements.
template <int B>
HWY_INLINE VF batch_amax(std::uint32_t* HWY_RESTRICT x) {
  VU16 largest = hn::Zero(U16());
  HWY_UNROLL(16)
  for (int i = 0; i < B / 2; ++i)
    largest = hn::Max(largest, hn::And(pair_row(x, i), hn::Set(U16(), 0x7FFF)));
  if (HWY_UNLIKELY(!hn::AllFalse(U16(), hn::Gt(largest, hn::Set(U16(), 0x7F80)))))
    return batch_amax_of_numbers<B>(x);
  return larger_of_pairs(largest);
}

HWY_INLINE VU lanes_scale_for(VF amax, VF divisor, float reciprocal) {
  const VF scale = hn::Mul(amax, hn::Mul(divisor, set_f32(reciprocal)));
  return e4m3_encode(min_or_limit(scale, set_f32(FLT_MAX)));
}

/// Sets the scale of each block and the factor of its elements.
template <int B, bool kPairs>
HWY_INLINE void set_scale(Batch<B, kPairs>& batch, VU scale) {
  const VF one = set_f32(1.0f);
  const VF multiplier = hn::Load(F32(), batch.multiplier);
  const VF factor = hn::Div(one, hn::Mul(e4m3_decode(scale), multiplier));
  hn::Store(scale, U32(), batch.scale);
  hn::Store(min_or_limit(factor, set_f32(FLT_MAX)), F32(), batch.factor);
}

/// Encodes the elements. kFetch: prefetches batch.next between computations, because many
/// prefetches in a row wait for each other.
template <bool kFetch = true, int B, bool kPairs>
HWY_INLINE void pack_codes(Batch<B, kPairs>& batch) {
  const VF factor = hn::Load(F32(), batch.factor);
  HWY_UNROLL(4)
  for (int word = 0; word < B / 8; ++word) {
    VU packed = hn::Zero(U32());
#if HWY_TARGET <= HWY_AVX3_DL
    VU signs = hn::Zero(U32());  // the first sign also ends up lowest
#endif
    HWY_UNROLL(8)
    for (int i = 0; i < 8; ++i) {
      const int element = 8 * word + i;
      const VF y = hn::Mul(batch.element(element), factor);
      if constexpr (kFetch && kPairs) {
        if (i % 2 == 0) batch.fetch_next(element / 2);
      } else if constexpr (kFetch) {
        batch.fetch_next(element);
      }
#if HWY_TARGET <= HWY_AVX3_DL
      packed = push_code(packed, e2m1_magnitude(y));
      const VU from_above = bits(batch.element(8 * word + 7 - i));
      signs = VU{_mm512_shldi_epi32(signs.raw, from_above.raw, 4)};
#else
      packed = push_code(packed, e2m1_encode(y));
#endif
    }
#if HWY_TARGET <= HWY_AVX3_DL
    packed = hn::Or(packed, hn::And(signs, set_u32(0x88888888)));
#endif
    hn::Store(packed, U32(), batch.packed + static_cast<std::size_t>(word) * kLanes);
  }
}

/// Computes the magnitudes for costs, as in cost_magnitude().
template <int B>
HWY_INLINE void cost_magnitudes(const Batch<B>& batch, float* HWY_RESTRICT u) {
  const VF divisor = hn::Load(F32(), batch.divisor);
  for (int i = 0; i < B; ++i) {
    const VF a = hn::Mul(hn::Abs(row(batch.x, i)), divisor);
    // A NaN fails the comparison and gives zero bits.
    const VF clamped =
        hn::Min(hn::IfThenElseZero(hn::Ge(a, hn::Zero(F32())), a), set_f32(kCostClamp));
    hn::Store(clamped, F32(), u + static_cast<std::size_t>(i) * kLanes);
  }
}

/// Returns the distance of u to the nearest E2M1 magnitude times `scale`, as in block_cost(). The
/// division finds a nearest code or, at a tie within rounding, its neighbor. There both differences
/// are exact (Sterbenz), so the smaller one is the result.
HWY_INLINE VF nearest_distance(VF u, VF scale, VF reciprocal) {
  const VF six = set_f32(E2M1::kMax);
  const VF v = hn::Min(hn::Mul(u, reciprocal), six);
  const VU binade = e2m1_binade(v);
  const VF magic = floats(hn::Add(binade, set_u32(22u << 23)));
  const VF q = hn::Sub(hn::Add(v, magic), magic);
  const VF step = floats(hn::Sub(binade, set_u32(1u << 23)));
  const VF distance = hn::Abs(hn::Sub(u, hn::Mul(q, scale)));
  const VF other = hn::Abs(hn::Sub(hn::Mul(step, scale), distance));
  return hn::IfThenElse(hn::Lt(v, six), hn::Min(distance, other), distance);
}

/// Returns block_cost() of every block with its own scale. Scale 0 is allowed.
template <int B, bool kWeighted>
HWY_INLINE VF batch_cost(const float* HWY_RESTRICT u, const float* HWY_RESTRICT weights, VF scale) {
  const VF reciprocal = hn::Div(set_f32(1.0f), hn::Max(scale, set_f32(0x1p-20f)));
  VF sum[4] = {hn::Zero(F32()), hn::Zero(F32()), hn::Zero(F32()), hn::Zero(F32())};
  for (int i = 0; i < B; i += 4) {
    HWY_UNROLL(4)
    for (int j = 0; j < 4; ++j) {
      const VF d = nearest_distance(row(u, i + j), scale, reciprocal);
      VF square;
      if constexpr (kWeighted)
        square = hn::Mul(hn::Mul(row(weights, i + j), d), d);
      else
        square = hn::Mul(d, d);
      sum[j] = hn::Add(sum[j], square);
    }
  }
  return hn::Add(hn::Add(sum[0], sum[1]), hn::Add(sum[2], sum[3]));
}

/// Returns a part of the cost that grows as the scale falls, so no smaller scale costs less. With
/// weights it is Σ w (u − 6·scale)² over clipped elements. Without weights the largest u suffices.
template <int B, bool kWeighted>
HWY_INLINE VF clip_cost(const float* HWY_RESTRICT u, const float* HWY_RESTRICT weights, VF amax,
                        VF scale) {
  const VF limit = hn::Mul(scale, set_f32(E2M1::kMax));
  if constexpr (!kWeighted) {
    const VF d = hn::Max(hn::Sub(amax, limit), hn::Zero(F32()));
    return hn::Mul(d, d);
  } else {
    VF sum[4] = {hn::Zero(F32()), hn::Zero(F32()), hn::Zero(F32()), hn::Zero(F32())};
    for (int i = 0; i < B; ++i) {
      const VF d = hn::Max(hn::Sub(row(u, i), limit), hn::Zero(F32()));
      sum[i % 4] = hn::Add(sum[i % 4], hn::Mul(hn::Mul(row(weights, i), d), d));
    }
    return hn::Add(hn::Add(sum[0], sum[1]), hn::Add(sum[2], sum[3]));
  }
}

/// Returns the cheapest of all 126 scales, the lowest on a tie, without trying all of them.
/// Upwards: if no |x| exceeds 3.5 scale, scale / 2 represents all values in use. So a code that can
/// be halved (>= 16) cannot win; 7 codes above RNE(amax / 6) suffice. Downwards: once clipping
/// alone costs more than the best, so does every smaller scale. Both arguments hold in rounded
/// arithmetic, because rounding is monotonic.
template <int B, bool kWeighted>
HWY_INLINE VU mse_scale_exact(const float* HWY_RESTRICT u, const float* HWY_RESTRICT weights) {
  VF amax = row(u, 0);
  for (int i = 1; i < B; ++i) amax = hn::Max(amax, row(u, i));
  const VU nearest = e4m3_encode(hn::Mul(amax, set_f32(kSixth)));
  const VI start =
      hn::Min(hn::Add(hn::Max(signed_bits(nearest), hn::Set(I32(), 8)), hn::Set(I32(), 7)),
              hn::Set(I32(), E4M3::kMaxBits));
  // A block of zeros costs nothing under any scale, so the lowest one wins at once.
  const auto all_zero = hn::RebindMask(I32(), hn::Eq(amax, hn::Zero(F32())));
  VI code = hn::IfThenElse(all_zero, hn::Set(I32(), 1), start), best = code;
  VF best_cost = set_f32(FLT_MAX);
  for (;;) {
    const VF scale = e4m3_decode(hn::BitCast(U32(), code));
    const VF cost = batch_cost<B, kWeighted>(u, weights, scale);
    // Finished lanes stay at code 1, whose cost is counted already or cannot win.
    const auto better = hn::Le(cost, best_cost);
    best = hn::IfThenElse(hn::RebindMask(I32(), better), code, best);
    best_cost = hn::IfThenElse(better, cost, best_cost);
    const VI next = hn::Sub(code, hn::Set(I32(), 1));
    const auto positive = hn::Gt(next, hn::Zero(I32()));
    const VI lower = hn::IfThenElse(positive, next, hn::Set(I32(), 1));
    const VF clipped =
        clip_cost<B, kWeighted>(u, weights, amax, e4m3_decode(hn::BitCast(U32(), lower)));
    const auto may_win = hn::RebindMask(I32(), hn::Le(clipped, best_cost));
    if (hn::AllFalse(I32(), hn::And(positive, may_win))) break;
    code = lower;
  }
  return hn::BitCast(U32(), best);
}

/// Returns the quantizer's scales by the exact search.
template <Quantizer kQuantizer, bool kWeighted, int B, bool kPairs>
HWY_INLINE VU choose_scale(Batch<B, kPairs>& batch) {
  const VF amax = batch_amax<B>(batch.x);
  const VF divisor = hn::Load(F32(), batch.divisor);
  const VU scale = lanes_scale_for(amax, divisor, kSixth);
  if constexpr (kQuantizer == Quantizer::max) {
    return scale;
  } else {
    alignas(64) float u[B * kLanes];
    cost_magnitudes(batch, u);
    if constexpr (kQuantizer == Quantizer::mse) {
      return mse_scale_exact<B, kWeighted>(u, batch.weights);
    } else {
      const VU four = lanes_scale_for(amax, divisor, 0.25f);
      const VF cost_six = batch_cost<B, false>(u, nullptr, e4m3_decode(scale));
      const VF cost_four = batch_cost<B, false>(u, nullptr, e4m3_decode(four));
      return hn::IfThenElse(hn::RebindMask(U32(), hn::Lt(cost_four, cost_six)), four, scale);
    }
  }
}

/// Encodes `n` batches.
template <Quantizer kQuantizer, bool kWeighted, int B>
HWY_NOINLINE void encode_group(Batch<B>* batches, int n) {
  for (int g = 0; g < n; ++g)
    set_scale(batches[g], choose_scale<kQuantizer, kWeighted>(batches[g]));
  for (int g = 0; g < n; ++g) pack_codes(batches[g]);
}

#endif  // NVFP4_HAVE_LANES
}  // namespace nvfp4::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // NVFP4_ENCODE_INL_H
