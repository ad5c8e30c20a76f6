// The formulas of quantizers/row_math.h in SIMD lanes, with the same operations in the same order.
#if defined(NVFP4_ROW_MATH_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef NVFP4_ROW_MATH_INL_H
#undef NVFP4_ROW_MATH_INL_H
#else
#define NVFP4_ROW_MATH_INL_H
#endif

#include "backends/cpu/lanes-inl.h"
#include "quantizers/row_math.h"

HWY_BEFORE_NAMESPACE();
namespace nvfp4::cpu::HWY_NAMESPACE {
#if NVFP4_HAVE_LANES

/// Returns a·b + c, rounded once.
HWY_INLINE VF lanes_fused(VF a, VF b, VF c) {
#if HWY_NATIVE_FMA
  return hn::MulAdd(a, b, c);
#else
  alignas(64) float x[kLanes], y[kLanes], z[kLanes];
  hn::Store(a, F32(), x);
  hn::Store(b, F32(), y);
  hn::Store(c, F32(), z);
  for (std::size_t i = 0; i < kLanes; ++i) z[i] = fused(x[i], y[i], z[i]);
  return hn::Load(F32(), z);
#endif
}

/// Returns v < limit ? limit : v. at_most() is the opposite. A NaN remains.
HWY_INLINE VF at_least(VF v, VF limit) {
#if HWY_ARCH_X86
  return hn::Max(limit, v);  // maxps returns its second operand for a NaN
#else
  return hn::IfThenElse(hn::Lt(v, limit), limit, v);
#endif
}
HWY_INLINE VF at_most(VF v, VF limit) {
#if HWY_ARCH_X86
  return hn::Min(limit, v);
#else
  return hn::IfThenElse(hn::Gt(v, limit), limit, v);
#endif
}

HWY_INLINE VF lanes_exponential(VF x) {
  x = at_most(at_least(x, set_f32(kExpLowest)), set_f32(kExpHighest));
  const VF magic = set_f32(kRoundMagic);
  const VF shifted = lanes_fused(x, set_f32(kLog2E), magic);
  const VF n = hn::Sub(shifted, magic);
  const VF r = lanes_fused(n, set_f32(-kLn2Low), lanes_fused(n, set_f32(-kLn2High), x));
  VF q = lanes_fused(set_f32(kExp5), r, set_f32(kExp4));
  q = lanes_fused(q, r, set_f32(kExp3));
  q = lanes_fused(q, r, set_f32(kExp2));
  q = lanes_fused(q, r, set_f32(kExp1));
  const VF p = lanes_fused(q, r, set_f32(1.0f));
#if HWY_TARGET <= HWY_AVX3
  return VF{_mm512_scalef_ps(p.raw, n.raw)};  // p · 2^n, rounded once, like the two products
#else
  const VI exponent = hn::Sub(signed_bits(bits(shifted)), hn::Set(I32(), 0x4B400000));
  const VI half = hn::ShiftRight<1>(exponent);
  const auto power = [](VI e) {
    return hn::BitCast(F32(), hn::ShiftLeft<23>(hn::Add(e, hn::Set(I32(), 127))));
  };
  return hn::Mul(hn::Mul(p, power(half)), power(hn::Sub(exponent, half)));
#endif
}

HWY_INLINE VF lanes_swiglu(VF gate, VF up, VF limit) {
  gate = at_most(gate, limit);
  up = at_least(at_most(up, limit), hn::Neg(limit));
  const VF denominator = hn::Add(set_f32(1.0f), lanes_exponential(hn::Neg(gate)));
  return hn::Mul(hn::Mul(gate, hn::Div(set_f32(1.0f), denominator)), up);
}

HWY_INLINE VF lanes_four_squares(VF a, VF b, VF c, VF d) {
  return lanes_fused(d, d, lanes_fused(c, c, lanes_fused(b, b, hn::Mul(a, a))));
}

/// Returns the sums of adjacent elements: those of a, then those of b.
HWY_INLINE VF pair_sums(VF a, VF b) {
  return hn::Add(hn::ConcatEven(F32(), b, a), hn::ConcatOdd(F32(), b, a));
}

/// The balanced tree of reciprocal_rms(). Vectors of leaves are added in order. Like in a binary
/// counter, two vectors of a level make one of the next. Missing vectors at the end are zero.
class TreeSum {
 public:
  TreeSum() {}  // the implicit one would not be compiled for the target
  void add(VF v) { push(v, 0); }
  /// Adds four vectors. The number of earlier vectors must be a multiple of four.
  void add4(VF a, VF b, VF c, VF d) { push(pair_sums(pair_sums(a, b), pair_sums(c, d)), 2); }
  float total() const {
    const VF zero = hn::Zero(F32());
    VF sum = zero;
    bool started = false;
    for (int level = 0; count_ >> level != 0; ++level) {
      if (count_ >> level & 1) {
        sum = started ? pair_sums(level_[level], sum) : pair_sums(level_[level], zero);
        started = true;
      } else if (started) {
        sum = pair_sums(sum, zero);
      }
    }
    for (std::size_t lanes = kLanes; lanes > 1; lanes /= 2) sum = pair_sums(sum, zero);
    return hn::GetLane(sum);
  }

 private:
  void push(VF v, int level) {
    std::uint64_t n = count_ >> level;
    count_ += std::uint64_t{1} << level;
    for (; n & 1; n >>= 1) v = pair_sums(level_[level++], v);
    level_[level] = v;
  }
  VF level_[48];
  std::uint64_t count_ = 0;
};

#endif  // NVFP4_HAVE_LANES
}  // namespace nvfp4::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // NVFP4_ROW_MATH_INL_H
