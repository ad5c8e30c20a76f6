// Quantizer::mse with a Hessian on the CPU: all 126 scales, on blocks that share a Hessian.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/encode_hessian.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep, before highway.h
#include "hwy/highway.h"
// After foreach_target.h, so that it is compiled for each target:
#include "backends/cpu/encode-inl.h"
#include "backends/cpu/tiles-inl.h"

HWY_BEFORE_NAMESPACE();
namespace nvfp4::cpu::HWY_NAMESPACE {
#if NVFP4_HAVE_LANES
namespace {

/// u - q · scale with the nearest code q, as in hessian_cost(): a tie takes the lower code. That
/// matters here, where the sign of the difference counts.
HWY_INLINE VF nearest_difference(VF u, float scale) {
  VF value = hn::Zero(F32());
  const auto step = [&](float threshold, float height) {
    const VF raised = hn::Add(value, set_f32(height * scale));  // exact
    value = hn::IfThenElse(hn::Gt(u, set_f32(threshold * scale)), raised, value);
  };
  step(0.25f, 0.5f);
  step(0.75f, 0.5f);
  step(1.25f, 0.5f);
  step(1.75f, 0.5f);
  step(2.5f, 1.0f);
  step(3.5f, 1.0f);
  step(5.0f, 2.0f);
  return hn::Sub(u, value);
}

/// hessian_cost() of every block. `u` are magnitudes, `signs` the sign bits of x.
template <int B>
HWY_INLINE VF hessian_costs(const float* HWY_RESTRICT u, const float* HWY_RESTRICT signs,
                            const float* HWY_RESTRICT h, std::int64_t stride, float scale) {
  alignas(64) float r[B * kLanes];
  for (int i = 0; i < B; ++i)
    hn::Store(hn::Xor(nearest_difference(row(u, i), scale), row(signs, i)), F32(),
              r + static_cast<std::size_t>(i) * kLanes);
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
  alignas(64) float u[B * kLanes], signs[B * kLanes];
  batch_amax<B>(batch.x);  // for the sign of NaN
  cost_magnitudes(batch, u);
  VF amax = hn::Zero(F32());
  for (int i = 0; i < B; ++i) {
    amax = hn::Max(amax, row(u, i));
    hn::Store(hn::And(row(batch.x, i), set_f32(-0.0f)), F32(),
              signs + static_cast<std::size_t>(i) * kLanes);
  }
  const float largest = hn::GetLane(hn::MaxOfLanes(F32(), amax));
  VU best = set_u32(1);
  VF best_cost = hessian_costs<B>(u, signs, h, stride, E4M3{1}.to_float());
  for (std::uint8_t code = 2; code <= E4M3::kMaxBits; ++code) {
    // Once every code is 0, a larger scale changes nothing.
    if (0.25f * E4M3{static_cast<std::uint8_t>(code - 1)}.to_float() >= largest) break;
    const VF cost = hessian_costs<B>(u, signs, h, stride, E4M3{code}.to_float());
    const auto better = hn::Lt(cost, best_cost);
    best = hn::IfThenElse(hn::RebindMask(U32(), better), set_u32(code), best);
    best_cost = hn::IfThenElse(better, cost, best_cost);
  }
  set_scale(batch, best);
  pack_codes(batch);
}

/// Element (v, k) of x and byte (v, k / 2) of the codes, whichever way the blocks run.
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

/// Block b of vectors v0 + lane, n of them.
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
  switch (job.x.dtype) {
    case DType::f32:
      return encode_dtype<float>(job, tile);
    case DType::bf16:
      return encode_dtype<BF16>(job, tile);
    case DType::f16:
      return encode_dtype<FP16>(job, tile);
  }
}
#endif  // NVFP4_HAVE_LANES
}  // namespace nvfp4::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
