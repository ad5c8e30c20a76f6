// Quantizer::mse with a Hessian on the CPU: tries all 126 scales on blocks that share a Hessian.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/encode_hessian.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep, before highway.h
#include "hwy/highway.h"
// Included after foreach_target.h, so that it is compiled for each target:
#include "backends/cpu/encode-inl.h"
#include "backends/cpu/tiles-inl.h"

HWY_BEFORE_NAMESPACE();
namespace nvfp4::cpu::HWY_NAMESPACE {
#if NVFP4_HAVE_LANES
namespace {

/// Returns u - q · scale with the encoder's code q of the magnitude `a`, as in hessian_cost().
HWY_INLINE VF encoded_difference(VF u, VF a, VF factor, VF scale) {
  const VF v = hn::Min(hn::Mul(a, factor), set_f32(E2M1::kMax));
  // The sum has E2M1's steps, and the adder rounds to nearest even.
  const VF magic = floats(hn::Add(e2m1_binade(v), set_u32(22u << 23)));
  return hn::Sub(u, hn::Mul(hn::Sub(hn::Add(v, magic), magic), scale));
}

/// The inputs of a batch's costs. Rows have kLanes values; NaN is replaced by 0.
template <int B>
struct Values {
  alignas(64) float u[B * kLanes];
  alignas(64) float magnitudes[B * kLanes];
  alignas(64) float signs[B * kLanes];  // sign bits of x
};

/// Returns hessian_cost() of every block.
template <int B>
HWY_INLINE VF hessian_costs(const Values<B>& x, const float* HWY_RESTRICT h, std::int64_t stride,
                            VF scale, VF factor) {
  alignas(64) float r[B * kLanes];
  for (int i = 0; i < B; ++i) {
    const VF d = encoded_difference(row(x.u, i), row(x.magnitudes, i), factor, scale);
    hn::Store(hn::Xor(d, row(x.signs, i)), F32(), r + static_cast<std::size_t>(i) * kLanes);
  }
  VF sum[4] = {hn::Zero(F32()), hn::Zero(F32()), hn::Zero(F32()), hn::Zero(F32())};
  for (int i = 0; i < B; ++i) {
    VF inner = hn::Zero(F32());
    for (int j = 0; j < i; ++j)
      inner = hn::Add(inner, hn::Mul(set_f32(h[i * stride + j]), row(r, j)));
    const VF weighted =
        hn::Add(hn::Mul(set_f32(h[i * stride + i]), row(r, i)), hn::Add(inner, inner));
    sum[i % 4] = hn::Add(sum[i % 4], hn::Mul(row(r, i), weighted));
  }
  return hn::Add(hn::Add(sum[0], sum[1]), hn::Add(sum[2], sum[3]));
}

template <int B>
HWY_NOINLINE void encode_batch(Batch<B>& batch, const float* h, std::int64_t stride) {
  Values<B> x;
  batch_amax<B>(batch.x);  // for the sign of NaN
  cost_magnitudes(batch, x.u);
  VF amax = hn::Zero(F32());
  for (int i = 0; i < B; ++i) {
    const auto at = static_cast<std::size_t>(i) * kLanes;
    const VF a = hn::Abs(row(batch.x, i));
    const VF magnitude = hn::IfThenZeroElse(hn::IsNaN(a), a);
    amax = hn::Max(amax, magnitude);
    hn::Store(magnitude, F32(), x.magnitudes + at);
    hn::Store(hn::And(row(batch.x, i), set_f32(-0.0f)), F32(), x.signs + at);
  }
  VU best = set_u32(1);
  VF best_cost = hn::Zero(F32());
  for (std::uint8_t code = 1; code <= E4M3::kMaxBits; ++code) {
    set_scale(batch, set_u32(code));
    const VF factor = hn::Load(F32(), batch.factor);
    const VF cost = hessian_costs<B>(x, h, stride, set_f32(E4M3{code}.to_float()), factor);
    if (code == 1) best_cost = cost;  // even if NaN, as in cheapest_scale()
    const auto better = hn::Lt(cost, best_cost);
    best = hn::IfThenElse(hn::RebindMask(U32(), better), set_u32(code), best);
    best_cost = hn::IfThenElse(better, cost, best_cost);
    // Once every code is 0, a larger scale changes nothing.
    if (hn::AllTrue(F32(), hn::Le(hn::Mul(amax, factor), set_f32(0.25f)))) break;
  }
  set_scale(batch, best);
  pack_codes(batch);
}

/// The steps between elements (v, k) of x, or between bytes (v, k / 2) of the codes, for both axes.
struct Steps {
  std::int64_t v, k;
};

template <class T>
float value_of(T x) {
  if constexpr (std::is_same_v<T, float>)
    return x;
  else
    return x.to_float();
}

/// Encodes block b of n vectors v0 + lane.
template <class T, int B>
void encode_lanes(const EncodeJob& job, std::int64_t b, std::int64_t v0, std::int64_t n) {
  const QuantizedShape& s = job.out.shape;
  const bool rows = s.axis == BlockAxis::rows;
  const Steps x_step = rows ? Steps{job.x.stride, 1} : Steps{1, job.x.stride};
  const Steps code_step = rows ? Steps{s.cols / 2, 1} : Steps{1, s.cols};
  Batch<B> batch;
  for (std::size_t lane = 0; lane < kLanes; ++lane) {
    const std::int64_t v = v0 + HWY_MIN(static_cast<std::int64_t>(lane), n - 1);
    const T* x = static_cast<const T*>(job.x.data) + (v - job.first_row) * x_step.v;
    for (std::int64_t i = 0; i < B; ++i)
      batch.x[static_cast<std::size_t>(i) * kLanes + lane] = value_of(x[(b * B + i) * x_step.k]);
    batch.divisor[lane] = job.divisor_of(v);
    batch.multiplier[lane] = 1.0f / batch.divisor[lane];
  }
  const auto* hessian = static_cast<const float*>(job.hessian.data);
  encode_batch<B>(batch, hessian + b * B * job.hessian.stride, job.hessian.stride);
  for (std::int64_t i = 0; i < n; ++i) {
    const auto lane = static_cast<std::size_t>(i);
    std::uint8_t* codes = job.out.codes + (v0 + i) * code_step.v;
    for (int pair = 0; pair < B / 2; ++pair)
      codes[(b * (B / 2) + pair) * code_step.k] = static_cast<std::uint8_t>(
          batch.packed[static_cast<std::size_t>(pair / 4) * kLanes + lane] >> 8 * (pair % 4));
    job.out.scales[s.scale_offset(v0 + i, b)] = static_cast<std::uint8_t>(batch.scale[lane]);
  }
}

template <class T, int B>
void encode_tile(const EncodeJob& job, const Tile& tile) {
  const auto lanes = static_cast<std::int64_t>(kLanes);
  for (std::int64_t b = tile.b0; b < tile.b1; ++b)
    for (std::int64_t v = tile.v0; v < tile.v1; v += lanes)
      encode_lanes<T, B>(job, b, v, HWY_MIN(lanes, tile.v1 - v));
}

template <class T>
void encode_dtype(const EncodeJob& job, const Tile& tile) {
  return job.out.shape.block == 32 ? encode_tile<T, 32>(job, tile) : encode_tile<T, 16>(job, tile);
}

}  // namespace

void encode_hessian(const EncodeJob& job, const Tile& tile) {
  visit_dtype(job.x.dtype, [&](auto type) { encode_dtype<decltype(type)>(job, tile); });
}
#endif  // NVFP4_HAVE_LANES
}  // namespace nvfp4::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
