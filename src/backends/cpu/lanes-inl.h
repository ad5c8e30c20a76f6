// Number formats in SIMD lanes. Included once for each target.
#if defined(NVFP4_LANES_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef NVFP4_LANES_INL_H
#undef NVFP4_LANES_INL_H
#else
#define NVFP4_LANES_INL_H
#endif

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "hwy/cache_control.h"
#include "hwy/highway.h"
#include "nvfp4/format.h"
#include "nvfp4/matrix.h"

HWY_BEFORE_NAMESPACE();
namespace nvfp4::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using F32 = hn::ScalableTag<float>;
using U32 = hn::RebindToUnsigned<F32>;
using I32 = hn::RebindToSigned<F32>;
using VF = hn::Vec<F32>;
using VU = hn::Vec<U32>;
using VI = hn::Vec<I32>;

#undef NVFP4_HAVE_LANES
#if HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128 && !HWY_HAVE_SCALABLE
inline constexpr std::size_t kLanes = hn::MaxLanes(F32());
#define NVFP4_HAVE_LANES 1
#else
inline constexpr std::size_t kLanes = 1;
#define NVFP4_HAVE_LANES 0  // the reference backend serves such machines
#endif

#if NVFP4_HAVE_LANES

HWY_INLINE VU bits(VF v) { return hn::BitCast(U32(), v); }
HWY_INLINE VF floats(VU v) { return hn::BitCast(F32(), v); }
HWY_INLINE VI signed_bits(VU v) { return hn::BitCast(I32(), v); }
HWY_INLINE VU set_u32(std::uint32_t u) { return hn::Set(U32(), u); }
HWY_INLINE VF set_f32(float f) { return hn::Set(F32(), f); }

/// Selects bit by bit: mask ? yes : no.
HWY_INLINE VU select_bits(VU mask, VU yes, VU no) {
#if HWY_TARGET <= HWY_AVX3
  return hn::IfVecThenElse(mask, yes, no);  // one instruction; other targets test sign bits only
#else
  return hn::Or(hn::And(mask, yes), hn::AndNot(mask, no));
#endif
}

/// Returns min(a, limit). A NaN gives the limit on every target.
HWY_INLINE VF min_or_limit(VF a, VF limit) {
#if HWY_ARCH_X86
  return hn::Min(a, limit);  // minps returns its second operand for a NaN
#else
  return hn::IfThenElse(hn::Lt(a, limit), a, limit);
#endif
}

/// Returns E4M3 bits, as E4M3::from_float(). Requires v >= 0 and no NaN.
HWY_INLINE VU e4m3_encode(VF v) {
  const VU subnormal =
      hn::And(bits(hn::Add(hn::Mul(v, set_f32(0x1p9f)), set_f32(0x1p23f))), set_u32(0xFF));
  const VU u = bits(hn::Min(v, set_f32(E4M3::kMax)));
  const VU odd = hn::And(hn::ShiftRight<20>(u), set_u32(1));
  const VU rounded = hn::ShiftRight<20>(hn::Add(hn::Add(u, set_u32(0x7FFFF)), odd));
  const VU normal = hn::Sub(rounded, set_u32(120u << 3));
  const auto small = hn::Lt(v, set_f32(0x1p-6f));
  return hn::IfThenElse(hn::RebindMask(U32(), small), subnormal, normal);
}

/// Returns the value of E4M3 bits in 0..126.
HWY_INLINE VF e4m3_decode(VU code) {
  const VF subnormal = hn::Mul(hn::ConvertTo(F32(), signed_bits(code)), set_f32(0x1p-9f));
  const VF normal = floats(hn::Add(hn::ShiftLeft<20>(code), set_u32(120u << 23)));
  const auto small = hn::Lt(signed_bits(code), hn::Set(I32(), 8));
  return hn::IfThenElse(hn::RebindMask(F32(), small), subnormal, normal);
}

/// Returns the E2M1 values of codes in 0..15, one in each lane.
HWY_INLINE VF e2m1_decode(VU code) {
#if HWY_TARGET <= HWY_AVX3
  alignas(64) static constexpr float kValues[16] = {0,    0.5f,  1,  1.5f,  2,  3,  4,  6,
                                                    -0.f, -0.5f, -1, -1.5f, -2, -3, -4, -6};
  return VF{_mm512_permutexvar_ps(code.raw, _mm512_load_ps(kValues))};
#else
  // 1, 1.5, 2, 3, 4 and 6 are normal with one mantissa bit; 0 and 0.5 are not.
  const VU magnitude = hn::And(code, set_u32(7));
  const VU normal = hn::ShiftLeft<22>(hn::Add(magnitude, set_u32(252)));
  const VU small = hn::And(hn::Sub(hn::Zero(U32()), magnitude), bits(set_f32(0.5f)));
  const auto is_small = hn::Lt(signed_bits(magnitude), hn::Set(I32(), 2));
  const VU value = hn::IfThenElse(hn::RebindMask(U32(), is_small), small, normal);
  return floats(hn::Or(value, hn::ShiftLeft<28>(hn::And(code, set_u32(8)))));
#endif
}

/// Returns max(exponent field of a, that of 1.0): the binade whose E2M1 step applies.
HWY_INLINE VU e2m1_binade(VF a) {
  return hn::BitCast(U32(), hn::Max(signed_bits(hn::And(bits(a), set_u32(0x7F800000))),
                                    hn::Set(I32(), 0x3F800000)));
}

/// Returns the E2M1 bits of |y|, as E2M1::from_float(), in the low four bits of each lane. Higher
/// bits are undefined. The addition of 2^(e+22) rounds a = |y| < 2^(e+1) to a multiple of 2^(e-1).
HWY_INLINE VU e2m1_magnitude(VF y) {
#if HWY_TARGET <= HWY_AVX3
  // The magic numbers of binades 2^0, 2^1, 2^2. Their low bits contain the code's 2e.
  alignas(64) static constexpr float kMagic[16] = {
      0x1p23f + 2, 0x1p24f + 8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x1p22f};
  constexpr int kSmallerMagnitudePositive = 0b1010;
  const __m512 a = _mm512_range_ps(y.raw, _mm512_set1_ps(E2M1::kMax), kSmallerMagnitudePositive);
  const __m512i exponent =
      _mm512_srli_epi32(_mm512_castps_si512(_mm512_max_ps(a, _mm512_set1_ps(1.0f))), 23);
  const __m512 magic = _mm512_permutexvar_ps(exponent, _mm512_load_ps(kMagic));
  return VU{_mm512_castps_si512(_mm512_add_ps(a, magic))};
#else
  const VF a = min_or_limit(hn::Abs(y), set_f32(E2M1::kMax));
  const VU binade = e2m1_binade(a);
  const VF magic = floats(hn::Add(binade, set_u32(22u << 23)));
  return hn::Add(hn::Add(bits(hn::Add(a, magic)), set_u32(2)), hn::ShiftRight<22>(binade));
#endif
}

/// Returns E2M1 bits in the low four bits of each lane, as E2M1::from_float(). Higher bits are
/// undefined. The caller removes the sign of a NaN.
HWY_INLINE VU e2m1_encode(VF y) {
  return select_bits(set_u32(7), e2m1_magnitude(y), hn::ShiftRight<28>(bits(y)));
}

/// Returns packed >> 4 with the new code on top: the first of eight ends up lowest.
HWY_INLINE VU push_code(VU packed, VU code) {
#if HWY_TARGET <= HWY_AVX3_DL
  return VU{_mm512_shrdi_epi32(packed.raw, code.raw, 4)};
#else
  return hn::Or(hn::ShiftRight<4>(packed), hn::ShiftLeft<28>(code));
#endif
}

HWY_INLINE VF bf16_low(VU pair) { return floats(hn::ShiftLeft<16>(pair)); }
HWY_INLINE VF bf16_high(VU pair) { return floats(hn::And(pair, set_u32(0xFFFF0000))); }

/// Decodes FP16 bits in the high half of each lane, without infinity and NaN. It multiplies no
/// subnormal number, which takes CPUs a hundred cycles.
HWY_INLINE VF f16_decode_finite(VU high) {
  const VU magnitude = hn::ShiftRight<3>(hn::And(high, set_u32(0x7FFF0000)));
  // With FP32's exponent bias, a subnormal m 2^-24 is (1 + m 2^-10) 2^-15. A normal number is the
  // smaller of the two.
  const VF normal = floats(hn::Add(magnitude, set_u32(112u << 23)));
  const VF value = hn::Min(normal, hn::MulAdd(normal, set_f32(2), set_f32(-0x1p-14f)));
  return floats(select_bits(set_u32(0x80000000), high, bits(value)));
}

/// Decodes FP16 bits in the high half of each lane.
HWY_INLINE VF f16_decode(VU high) {
  const VU magnitude = hn::And(high, set_u32(0x7FFF0000));
  const auto is_special = hn::Gt(signed_bits(magnitude), hn::Set(I32(), 0x7BFFFFFF));
  const VU special = hn::Or(hn::ShiftRight<3>(hn::And(high, set_u32(0x03FF0000))),
                            hn::Or(hn::And(high, set_u32(0x80000000)), set_u32(0x7F800000)));
  return hn::IfThenElse(hn::RebindMask(F32(), is_special), floats(special),
                        f16_decode_finite(high));
}

/// Returns BF16 bits in the low half of each lane, as BF16::from_float().
HWY_INLINE VU bf16_encode(VF v) {
  const VU u = bits(v);
  const VU odd = hn::And(hn::ShiftRight<16>(u), set_u32(1));
  const VU rounded = hn::ShiftRight<16>(hn::Add(hn::Add(u, set_u32(0x7FFF)), odd));
  return hn::IfThenElse(hn::RebindMask(U32(), hn::IsNaN(v)), set_u32(0x7FFF), rounded);
}

/// Returns FP16 bits in the low half of each lane, as FP16::from_float().
HWY_INLINE VU f16_encode(VF v) {
  const VU sign = hn::And(hn::ShiftRight<16>(bits(v)), set_u32(0x8000));
  const VU u = hn::And(bits(v), set_u32(0x7FFFFFFF));
  const VU odd = hn::And(hn::ShiftRight<13>(u), set_u32(1));
  const VU normal =
      hn::ShiftRight<13>(hn::Sub(hn::Add(hn::Add(u, set_u32(0xFFF)), odd), set_u32(112u << 23)));
  const VU subnormal = hn::Sub(bits(hn::Add(floats(u), set_f32(0.5f))), bits(set_f32(0.5f)));
  const auto below = [&](std::uint32_t limit) {
    return hn::RebindMask(U32(),
                          hn::Lt(signed_bits(u), hn::Set(I32(), static_cast<std::int32_t>(limit))));
  };
  VU result = hn::IfThenElse(below(0x38800000), subnormal, normal);
  result = hn::IfThenElse(below(0x477FF000), result, set_u32(0x7C00));
  result = hn::Or(result, sign);
  return hn::IfThenElse(below(0x7F800001), result, set_u32(0x7FFF));
}

/// Loads kLanes elements from contiguous memory.
HWY_INLINE VF load_lanes(const float* p) { return hn::LoadU(F32(), p); }
template <class Half>
HWY_INLINE VF load_lanes(const Half* p) {
  const hn::Rebind<std::uint16_t, F32> d16;
  const VU h = hn::PromoteTo(U32(), hn::LoadU(d16, reinterpret_cast<const std::uint16_t*>(p)));
  const VU high = hn::ShiftLeft<16>(h);
  if constexpr (std::is_same_v<Half, BF16>)
    return floats(high);
  else
    return f16_decode(high);
}

/// Returns the bits of v rounded to T, BF16 or FP16.
template <class T>
HWY_INLINE hn::Vec<hn::Rebind<std::uint16_t, F32>> half_bits(VF v) {
  const VU half = std::is_same_v<T, BF16> ? bf16_encode(v) : f16_encode(v);
  return hn::DemoteTo(hn::Rebind<std::uint16_t, F32>(), signed_bits(half));
}

/// Stores kLanes elements to contiguous memory, rounded to T.
template <class T>
HWY_INLINE void store_lanes(VF v, T* p) {
  if constexpr (std::is_same_v<T, float>)
    hn::StoreU(v, F32(), p);
  else
    hn::StoreU(half_bits<T>(v), hn::Rebind<std::uint16_t, F32>(),
               reinterpret_cast<std::uint16_t*>(p));
}

/// Stores a vector. `stream` bypasses the caches; p must then be aligned to a vector.
template <class D, class V>
HWY_INLINE void store_or_stream(V v, D d, hn::TFromD<D>* p, bool stream) {
  if (stream)
    hn::Stream(v, d, p);
  else
    hn::StoreU(v, d, p);
}

/// Returns a vector whose 128-bit part j holds the four words at p + 4 j stride.
template <class D>
HWY_INLINE hn::Vec<D> load_quads(D d, const std::uint32_t* p, std::size_t stride) {
#if HWY_TARGET <= HWY_AVX3
  if constexpr (hn::MaxLanes(d) == 16) {  // only loads and blends, no shuffles
    const auto quad = [&](std::size_t j) {
      return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p + 4 * j * stride));
    };
    __m512i v = _mm512_castsi128_si512(quad(0));
    v = _mm512_mask_broadcast_i32x4(v, 0x00F0, quad(1));
    v = _mm512_mask_broadcast_i32x4(v, 0x0F00, quad(2));
    v = _mm512_mask_broadcast_i32x4(v, 0xF000, quad(3));
    return hn::Vec<D>{v};
  }
#endif
  if constexpr (hn::MaxLanes(d) == 4) {
    return hn::LoadU(d, p);
  } else {
    const hn::Half<D> half;
    return hn::Combine(d, load_quads(half, p + hn::MaxLanes(half) * stride, stride),
                       load_quads(half, p, stride));
  }
}

/// Loads four words of each of kLanes rows, `stride` words apart, transposed. out[i] holds word i,
/// one row in each lane.
HWY_INLINE void load_transposed(const std::uint32_t* p, std::size_t stride, VU out[4]) {
  const U32 d;
  const hn::RepartitionToWide<U32> d64;
  const VU r0 = load_quads(d, p, stride);
  const VU r1 = load_quads(d, p + stride, stride);
  const VU r2 = load_quads(d, p + 2 * stride, stride);
  const VU r3 = load_quads(d, p + 3 * stride, stride);
  const auto lo01 = hn::BitCast(d64, hn::InterleaveLower(d, r0, r1));
  const auto lo23 = hn::BitCast(d64, hn::InterleaveLower(d, r2, r3));
  const auto hi01 = hn::BitCast(d64, hn::InterleaveUpper(d, r0, r1));
  const auto hi23 = hn::BitCast(d64, hn::InterleaveUpper(d, r2, r3));
  out[0] = hn::BitCast(d, hn::InterleaveLower(d64, lo01, lo23));
  out[1] = hn::BitCast(d, hn::InterleaveUpper(d64, lo01, lo23));
  out[2] = hn::BitCast(d, hn::InterleaveLower(d64, hi01, hi23));
  out[3] = hn::BitCast(d, hn::InterleaveUpper(d64, hi01, hi23));
}

/// Loads kLanes blocks of B elements, `stride` words apart: x[i kLanes + lane] = element i of block
/// `lane`.
template <int B, class T>
HWY_INLINE void load_blocks(const T* src, float* HWY_RESTRICT x,
                            std::size_t stride = B * sizeof(T) / 4) {
  const auto* words = reinterpret_cast<const std::uint32_t*>(src);
  const F32 d;
  VU w[4];
  if constexpr (sizeof(T) == 4) {
    for (int g = 0; g < B / 4; ++g) {
      load_transposed(words + 4 * g, stride, w);
      for (int i = 0; i < 4; ++i)
        hn::Store(floats(w[i]), d, x + static_cast<std::size_t>(4 * g + i) * kLanes);
    }
  } else {
    const hn::Repartition<std::uint16_t, F32> d16;
    auto largest = hn::Zero(d16);  // largest bits of the magnitudes
    for (int g = 0; g < B / 8; ++g) {
      load_transposed(words + 4 * g, stride, w);
      for (int i = 0; i < 4; ++i) {
        float* to = x + static_cast<std::size_t>(8 * g + 2 * i) * kLanes;
        if constexpr (std::is_same_v<T, BF16>) {
          hn::Store(bf16_low(w[i]), d, to);
          hn::Store(bf16_high(w[i]), d, to + kLanes);
        } else {
          hn::Store(f16_decode_finite(hn::ShiftLeft<16>(w[i])), d, to);
          hn::Store(f16_decode_finite(w[i]), d, to + kLanes);
          largest = hn::Max(largest, hn::And(hn::BitCast(d16, w[i]), hn::Set(d16, 0x7FFF)));
        }
      }
    }
    if constexpr (std::is_same_v<T, FP16>)
      if (HWY_UNLIKELY(!hn::AllFalse(d16, hn::Gt(largest, hn::Set(d16, 0x7BFF)))))
        for (std::size_t lane = 0; lane < kLanes; ++lane)
          for (std::size_t i = 0; i < B; i += kLanes) {
            alignas(64) float values[kLanes];
            hn::Store(load_lanes(reinterpret_cast<const T*>(words + lane * stride) + i), d, values);
            for (std::size_t j = 0; j < kLanes; ++j) x[(i + j) * kLanes + lane] = values[j];
          }
  }
}

/// Same without conversion: x[i kLanes + lane] = elements 2 i and 2 i + 1 of block `lane`.
template <int B>
HWY_INLINE void load_blocks(const BF16* src, std::uint32_t* HWY_RESTRICT x,
                            std::size_t stride = B / 2) {
  for (int g = 0; g < B / 8; ++g) {
    VU w[4];
    load_transposed(reinterpret_cast<const std::uint32_t*>(src) + 4 * g, stride, w);
    for (int i = 0; i < 4; ++i)
      hn::Store(w[i], U32(), x + static_cast<std::size_t>(4 * g + i) * kLanes);
  }
}

/// Copies `n` blocks of B elements, `stride` apart, and adds zeros up to the size that
/// load_blocks() reads.
template <int B, class T>
HWY_NOINLINE const T* copy_blocks(const T* from, std::int64_t stride, std::int64_t n,
                                  T (&to)[B * kLanes]) {
  std::memset(to, 0, sizeof to);
  for (std::int64_t i = 0; i < n; ++i) std::memcpy(to + i * B, from + i * stride, B * sizeof(T));
  return to;
}

/// Calls `f` with a value of the type of elements.
template <class F>
decltype(auto) visit_dtype(DType dtype, F&& f) {
  switch (dtype) {
    case DType::bf16:
      return f(BF16{});
    case DType::f16:
      return f(FP16{});
    case DType::f32:
      break;
  }
  return f(0.0f);
}

#endif  // NVFP4_HAVE_LANES

}  // namespace nvfp4::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // NVFP4_LANES_INL_H
