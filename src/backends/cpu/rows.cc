// Rows of the fused operations on the CPU: norms, mixed streams, SwiGLU.
#include "backends/cpu/kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/rows.cc"
#include "hwy/cache_control.h"
#include "hwy/foreach_target.h"  // IWYU pragma: keep, before highway.h
#include "hwy/highway.h"
// Included after foreach_target.h, so that it is compiled for each target:
#include "backends/cpu/row-math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace nvfp4::cpu::HWY_NAMESPACE {
#if NVFP4_HAVE_LANES
namespace {  // the other files of this folder have functions of the same names

constexpr auto kStep = static_cast<std::int64_t>(kLanes);

/// Prefetches the row after r of a matrix, a part in each step of row r. Otherwise its reads would
/// wait until row r is encoded.
class NextRow {
 public:
  NextRow() = default;
  NextRow(const MatrixView& m, std::int64_t r, std::int64_t steps)
      : next_(static_cast<const char*>(m.data) +
              (r + 1 < m.rows ? r + 1 : r) * m.stride * dtype_size(m.dtype)),
        bytes_(steps > 0 ? m.cols * dtype_size(m.dtype) / steps : 0) {}
  HWY_INLINE void fetch(std::int64_t step) const {
    const char* p = next_ + step * bytes_;
    for (std::int64_t b = 0; b < bytes_; b += 64) hwy::Prefetch(p + b);
  }

 private:
  const char* next_ = nullptr;
  std::int64_t bytes_ = 0;  // in each step
};

template <class T>
HWY_INLINE VF rounded(VF v) {
  if constexpr (std::is_same_v<T, BF16>) return floats(hn::ShiftLeft<16>(bf16_encode(v)));
  if constexpr (std::is_same_v<T, FP16>) return f16_decode(hn::ShiftLeft<16>(f16_encode(v)));
  return v;
}

/// Accumulates the largest magnitude, ignoring NaN.
class Amax {
 public:
  HWY_INLINE Amax() : largest_(hn::Zero(I32())) {}
  HWY_INLINE void see(VF v) { largest_ = hn::Max(largest_, signed_bits(bits(hn::Abs(v)))); }
  /// Returns the maximum. `row` has all values, for the rare case of a NaN.
  float of(const float* row, std::int64_t n) const {
    const float largest = hn::GetLane(hn::BitCast(F32(), hn::MaxOfLanes(I32(), largest_)));
    if (HWY_LIKELY(largest == largest)) return largest;
    VF amax = hn::Zero(F32());
    for (std::int64_t i = 0; i < n; i += kStep) {
      const VF a = hn::Abs(hn::LoadU(F32(), row + i));
      amax = hn::IfThenElse(hn::Gt(a, amax), a, amax);
    }
    return hn::GetLane(hn::MaxOfLanes(F32(), amax));
  }

 private:
  VI largest_;
};

/// Computes four_squares() of 4 kLanes values.
template <class T>
HWY_INLINE VF leaf(const T* p) {
  if constexpr (std::is_same_v<T, BF16>) {  // two adjacent elements share a word
    const auto* words = reinterpret_cast<const std::uint32_t*>(p);
    const VU a = hn::LoadU(U32(), words), b = hn::LoadU(U32(), words + kLanes);
    const VU first = hn::ConcatEven(U32(), b, a), second = hn::ConcatOdd(U32(), b, a);
    return lanes_four_squares(bf16_low(first), bf16_high(first), bf16_low(second),
                              bf16_high(second));
  } else {
    const VF a = load_lanes(p), b = load_lanes(p + kLanes);
    const VF c = load_lanes(p + 2 * kLanes), d = load_lanes(p + 3 * kLanes);
    const VF even = hn::ConcatEven(F32(), b, a), odd = hn::ConcatOdd(F32(), b, a);
    const VF more_even = hn::ConcatEven(F32(), d, c), more_odd = hn::ConcatOdd(F32(), d, c);
    return lanes_four_squares(
        hn::ConcatEven(F32(), more_even, even), hn::ConcatEven(F32(), more_odd, odd),
        hn::ConcatOdd(F32(), more_even, even), hn::ConcatOdd(F32(), more_odd, odd));
  }
}

template <class T>
float sum_of_squares(const T* p, std::int64_t n) {
  constexpr std::int64_t kLeaf = 4 * kLanes;
  TreeSum sum;
  std::int64_t i = 0;
  for (; i + 4 * kLeaf <= n; i += 4 * kLeaf)
    sum.add4(leaf(p + i), leaf(p + i + kLeaf), leaf(p + i + 2 * kLeaf), leaf(p + i + 3 * kLeaf));
  for (; i + kLeaf <= n; i += kLeaf) sum.add(leaf(p + i));
  if (i < n) {
    alignas(64) T part[kLeaf] = {};
    std::memcpy(part, p + i, static_cast<std::size_t>(n - i) * sizeof(T));
    sum.add(leaf(part));
  }
  return sum.total();
}

/// Normalizes a row. x and row may be the same memory.
template <class T, class Intermediate>
float normalize(const T* x, const float* weight, float rstd, std::int64_t n, const NextRow& next,
                float* row) {
  const VF scale = set_f32(rstd);
  Amax amax;
  for (std::int64_t i = 0; i < n; i += kStep) {
    next.fetch(i / kStep);
    const VF y = hn::Mul(hn::Mul(load_lanes(x + i), hn::LoadU(F32(), weight + i)), scale);
    const VF value = rounded<Intermediate>(y);
    amax.see(value);
    hn::StoreU(value, F32(), row + i);
  }
  return amax.of(row, n);
}

/// Normalizes `x`, the input of row r.
template <class T>
float norm_row(const RowJob& job, std::int64_t r, const T* x, float* row) {
  const float rstd = reciprocal_rms(sum_of_squares(x, job.cols), job.cols, job.norm.eps);
  if (job.norm.rstd != nullptr) job.norm.rstd[r] = rstd;
  NextRow next;
  if (job.norm.residual.data != nullptr) next = NextRow(job.norm.residual, r, job.cols / kStep);
  return visit_dtype(job.norm.intermediate, [&](auto to) {
    return normalize<T, decltype(to)>(x, job.weight, rstd, job.cols, next, row);
  });
}

template <class T>
const T* row_of(const MatrixView& m, std::int64_t r) {
  return static_cast<const T*>(m.data) + r * m.stride;
}

/// Loads a part of a row as FP32.
void load_part(const MatrixView& m, std::int64_t r, std::int64_t c, std::int64_t n, float* out) {
  visit_dtype(m.dtype, [&](auto type) {
    const auto* from = row_of<decltype(type)>(m, r) + c;
    for (std::int64_t i = 0; i < n; i += kStep) hn::StoreU(load_lanes(from + i), F32(), out + i);
  });
}

/// Computes row = x + residual, rounded, and stores it as the new residual.
void add_residual(const RowJob& job, std::int64_t r, float* row) {
  constexpr std::int64_t kPart = 256;
  alignas(64) float residual[kPart];
  const MatrixSpan& sum = job.norm.residual_out;
  for (std::int64_t c = 0; c < job.cols; c += kPart) {
    const std::int64_t n = HWY_MIN(kPart, job.cols - c);
    load_part(job.x, r, c, n, row + c);
    load_part(job.norm.residual, r, c, n, residual);
    visit_dtype(sum.dtype, [&](auto type) {
      using T = decltype(type);
      T* to = static_cast<T*>(sum.data) + r * sum.stride + c;
      for (std::int64_t i = 0; i < n; i += kStep) {
        const VF v =
            rounded<T>(hn::Add(hn::LoadU(F32(), row + c + i), hn::Load(F32(), residual + i)));
        store_lanes(v, to + i);
        hn::StoreU(v, F32(), row + c + i);
      }
    });
  }
}

template <class T, int kStreams>
float mix_row(const T* x, const float* mix, std::int64_t n, float* row) {
  VF weights[kStreams];
  for (int h = 0; h < kStreams; ++h) weights[h] = set_f32(mix[h]);
  Amax amax;
  for (std::int64_t i = 0; i < n; i += kStep) {
    VF sum = hn::Mul(weights[0], load_lanes(x + i));
    HWY_UNROLL(4)
    for (int h = 1; h < kStreams; ++h)
      sum = hn::Add(sum, hn::Mul(weights[h], load_lanes(x + h * n + i)));
    amax.see(sum);
    hn::StoreU(sum, F32(), row + i);
  }
  return amax.of(row, n);
}

template <class T>
float mix_row(const RowJob& job, std::int64_t r, float* row) {
  const T* x = row_of<T>(job.x, r);
  const float* mix = row_of<float>(job.mix, r);
  switch (job.streams) {
    case 1:
      return mix_row<T, 1>(x, mix, job.cols, row);
    case 2:
      return mix_row<T, 2>(x, mix, job.cols, row);
    case 3:
      return mix_row<T, 3>(x, mix, job.cols, row);
    default:
      static_assert(kMostStreams == 4);
      return mix_row<T, 4>(x, mix, job.cols, row);
  }
}

/// Loads gate and up of columns i to i + kLanes - 1, in groups of at least kLanes columns. `Halves`
/// is for halves.
template <class T>
struct WideGroups {
  const T* x;
  std::int64_t group;
  HWY_INLINE void load(std::int64_t i, VF& gate, VF& up) const {
    const T* p = x + i + (i & -group);
    gate = load_lanes(p);
    up = load_lanes(p + group);
  }
};
template <class T>
struct Halves {
  const T *gates, *ups;
  HWY_INLINE void load(std::int64_t i, VF& gate, VF& up) const {
    gate = load_lanes(gates + i);
    up = load_lanes(ups + i);
  }
};
/// Loads from groups of kLanes / 2.
template <class T>
struct HalfVectorGroups {
  const T* x;
  HWY_INLINE void load(std::int64_t i, VF& gate, VF& up) const {
    const VF a = load_lanes(x + 2 * i), b = load_lanes(x + 2 * i + kStep);
    gate = hn::ConcatLowerLower(F32(), b, a);
    up = hn::ConcatUpperUpper(F32(), b, a);
  }
};
/// Loads from smaller groups.
template <class T>
struct NarrowGroups {
  const T* x;
  std::int64_t group;
  HWY_INLINE void load(std::int64_t i, VF& gate, VF& up) const {
    alignas(64) T gates[kLanes], ups[kLanes];
    for (std::int64_t j = 0; j < kStep; ++j) {
      const T* p = x + i + j + ((i + j) & -group);
      gates[j] = p[0];
      ups[j] = p[group];
    }
    gate = load_lanes(gates);
    up = load_lanes(ups);
  }
};

template <class GateUp>
float swiglu_row(const GateUp& gate_up, const RowJob& job, std::int64_t r, float* row) {
  const VF limit = set_f32(job.swiglu.limit);
  const NextRow next(job.x, r, job.cols / kStep);
  Amax amax;
  for (std::int64_t i = 0; i < job.cols; i += kStep) {
    next.fetch(i / kStep);
    VF gate, up;
    gate_up.load(i, gate, up);
    const VF y = lanes_swiglu(gate, up, limit);
    amax.see(y);
    hn::StoreU(y, F32(), row + i);
  }
  return amax.of(row, job.cols);
}

template <class T>
float swiglu_row(const RowJob& job, std::int64_t r, float* row) {
  const T* x = row_of<T>(job.x, r);
  const std::int64_t group = job.swiglu.interleave;
  if (group == 0) return swiglu_row(Halves<T>{x, x + job.cols}, job, r, row);
  if (group >= kStep) return swiglu_row(WideGroups<T>{x, group}, job, r, row);
  if (2 * group == kStep) return swiglu_row(HalfVectorGroups<T>{x}, job, r, row);
  return swiglu_row(NarrowGroups<T>{x, group}, job, r, row);
}

template <class T>
float plain_row(const RowJob& job, std::int64_t r, float* row) {
  const T* x = row_of<T>(job.x, r);
  Amax amax;
  for (std::int64_t i = 0; i < job.cols; i += kStep) {
    const VF v = load_lanes(x + i);
    amax.see(v);
    hn::StoreU(v, F32(), row + i);
  }
  return amax.of(row, job.cols);
}

/// Computes a row. Returns its largest magnitude.
template <class T>
float make_row(const RowJob& job, std::int64_t r, float* row) {
  switch (job.source) {
    case RowSource::plain:
      return plain_row<T>(job, r, row);
    case RowSource::rms_norm:
      if (job.norm.residual.data == nullptr) return norm_row(job, r, row_of<T>(job.x, r), row);
      add_residual(job, r, row);
      return norm_row(job, r, row, row);
    case RowSource::mix:
      return mix_row<T>(job, r, row);
    case RowSource::mix_rms_norm:
      mix_row<T>(job, r, row);
      return norm_row(job, r, row, row);
    case RowSource::swiglu:
      return swiglu_row<T>(job, r, row);
  }
  return 0;
}

void make_rows(const RowJob& job, std::int64_t r0, std::int64_t r1, float* rows, float* amax) {
  visit_dtype(job.x.dtype, [&](auto type) {
    for (std::int64_t r = r0; r < r1; ++r)
      amax[r - r0] = make_row<decltype(type)>(job, r, rows + (r - r0) * job.cols);
  });
}

void store_rows(const float* rows, std::int64_t r0, std::int64_t r1, const MatrixSpan& y) {
  visit_dtype(y.dtype, [&](auto type) {
    using T = decltype(type);
    for (std::int64_t r = r0; r < r1; ++r) {
      const float* row = rows + (r - r0) * y.cols;
      T* to = static_cast<T*>(y.data) + r * y.stride;
      for (std::int64_t i = 0; i < y.cols; i += kStep)
        store_lanes(hn::LoadU(F32(), row + i), to + i);
    }
  });
}

}  // namespace

void fill_rows(Backend& backend) {
  backend.make_rows = make_rows;
  backend.store_rows = store_rows;
}
#endif  // NVFP4_HAVE_LANES
}  // namespace nvfp4::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
