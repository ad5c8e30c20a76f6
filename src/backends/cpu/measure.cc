// Reductions on the CPU: largest magnitudes.
#include <vector>

#include "backends/cpu/kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/measure.cc"
#include "hwy/cache_control.h"
#include "hwy/foreach_target.h"  // IWYU pragma: keep, before highway.h
#include "hwy/highway.h"
// Included after foreach_target.h, so that it is compiled for each target:
#include "backends/cpu/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace nvfp4::cpu::HWY_NAMESPACE {
#if NVFP4_HAVE_LANES
namespace {  // the other files of this folder have functions of the same names

/// Returns the bits of |element|, for any type of the memory.
template <class Bits>
Bits magnitude_bits(const Bits* p) {
  Bits u;
  std::memcpy(&u, p, sizeof u);
  return static_cast<Bits>(u & (Bits(~Bits(0)) >> 1));
}

/// Returns the largest |bits| as integers: NaN is above infinity, which is above every finite
/// value. Reads two parts at a time, with prefetches. One stream does not saturate the memory; four
/// are slower.
template <class Bits>
Bits largest_bits(const Bits* p, std::int64_t n) {
  const hn::ScalableTag<Bits> d;
  using V = hn::Vec<decltype(d)>;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const V mask = hn::Set(d, static_cast<Bits>(Bits(~Bits(0)) >> 1));
  constexpr int kParts = 2;
  V m[kParts] = {hn::Zero(d), hn::Zero(d)};
  constexpr std::int64_t kAheadBytes = 3072, kLine = 64;
  const std::int64_t step = kLine / static_cast<std::int64_t>(sizeof(Bits));
  const std::int64_t part = n / (kParts * step) * step;
  for (std::int64_t i = 0; i < part; i += step)
    for (int j = 0; j < kParts; ++j) {
      const Bits* line = p + j * part + i;
      hwy::Prefetch(reinterpret_cast<const char*>(line) + kAheadBytes);
      for (std::int64_t k = 0; k < step; k += lanes)
        m[j] = hn::Max(m[j], hn::And(hn::LoadU(d, line + k), mask));
    }
  std::int64_t i = kParts * part;
  for (; i + lanes <= n; i += lanes) m[0] = hn::Max(m[0], hn::And(hn::LoadU(d, p + i), mask));
  alignas(64) Bits all[hn::MaxLanes(d)];
  hn::Store(hn::Max(m[0], m[1]), d, all);
  Bits result = 0;
  for (std::int64_t j = 0; j < lanes; ++j) result = HWY_MAX(result, all[j]);
  for (; i < n; ++i) result = HWY_MAX(result, magnitude_bits(p + i));
  return result;
}

float value_of(std::uint32_t u, DType) { return bits_float(u); }
float value_of(std::uint16_t u, DType t) {
  return t == DType::bf16 ? BF16{u}.to_float() : FP16{u}.to_float();
}

template <class Bits>
AmaxResult amax_of(const MatrixView& x, std::int64_t r0, std::int64_t r1, Bits infinity) {
  const auto* data = static_cast<const Bits*>(x.data);
  const bool dense = x.stride == x.cols;
  const std::int64_t runs = dense ? 1 : r1 - r0, length = dense ? (r1 - r0) * x.cols : x.cols;
  Bits largest = 0;
  for (std::int64_t i = 0; i < runs; ++i)
    largest = HWY_MAX(largest, largest_bits(data + (r0 + i) * x.stride, length));
  if (largest <= infinity) return {value_of(largest, x.dtype), largest < infinity};
  largest = 0;  // there is a NaN: a slow search that ignores it
  for (std::int64_t r = r0; r < r1; ++r)
    for (std::int64_t c = 0; c < x.cols; ++c) {
      const Bits u = magnitude_bits(data + r * x.stride + c);
      if (u <= infinity) largest = HWY_MAX(largest, u);
    }
  return {value_of(largest, x.dtype), false};
}

AmaxResult amax(const MatrixView& x, std::int64_t r0, std::int64_t r1) {
  switch (x.dtype) {
    case DType::bf16:
      return amax_of<std::uint16_t>(x, r0, r1, 0x7F80);
    case DType::f16:
      return amax_of<std::uint16_t>(x, r0, r1, 0x7C00);
    case DType::f32:
      break;
  }
  return amax_of<std::uint32_t>(x, r0, r1, 0x7F800000);
}

template <class T>
void column_amax_of(const MatrixView& x, std::int64_t r0, std::int64_t r1, float* out) {
  const auto lanes = static_cast<std::int64_t>(kLanes);
  for (std::int64_t r = r0; r < r1; ++r) {
    const T* p = static_cast<const T*>(x.data) + r * x.stride;
    std::int64_t c = 0;
    for (; c + lanes <= x.cols; c += lanes) {
      const VF a = hn::Abs(load_lanes(p + c));
      const VF largest = hn::LoadU(F32(), out + c);
      // A NaN compares false and is skipped.
      hn::StoreU(hn::IfThenElse(hn::Gt(a, largest), a, largest), F32(), out + c);
    }
    for (; c < x.cols; ++c) {
      float value;
      if constexpr (std::is_same_v<T, float>)
        value = p[c];
      else
        value = p[c].to_float();
      const float a = value < 0 ? -value : value;
      if (a > out[c]) out[c] = a;
    }
  }
}

void column_amax(const MatrixView& x, std::int64_t r0, std::int64_t r1, float* out) {
  visit_dtype(x.dtype, [&](auto type) { column_amax_of<decltype(type)>(x, r0, r1, out); });
}

}  // namespace

void fill_measure(Backend& backend) {
  backend.amax = amax;
  backend.column_amax = column_amax;
}
#endif  // NVFP4_HAVE_LANES
}  // namespace nvfp4::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
