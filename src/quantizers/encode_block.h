#pragma once

#include <cfloat>
#include <cstdint>

#include "nvfp4/format.h"
#include "nvfp4/quantize.h"

/// The definition of quantization: the scalar formulas of a block. Every backend calls them or is
/// tested to give their bits. The operations are IEEE single precision without fused multiply-add,
/// so that SSE4, AVX, NEON and GPUs agree.
///
/// Some backends have a faster form of a formula. A change here also changes (below src/backends):
/// - scale_for(): lanes_scale_for() in cpu/encode-inl.h; Encoder::scale_code() in
///   cuda/device/encode.cuh; choose_code() and choose_four_over_six() in cuda/device/search.cuh.
/// - element_factor(): set_scale() in cpu/encode-inl.h; Encoder::eighth() and multiply() in
///   cuda/device/encode.cuh; BlockGlobal::factor() in cuda/device/difference.cuh.
/// - encode_elements(): pack_codes() in cpu/encode-inl.h; encode8() in cuda/device/encode.cuh.
/// - cost_magnitude(): cost_magnitudes() in cpu/encode-inl.h; choose_code() in
///   cuda/device/search.cuh; BlockGlobal::cost_value() in cuda/device/difference.cuh.
/// - block_cost(): batch_cost() and clip_cost() in cpu/encode-inl.h; cpu/mse-inl.h and
///   cpu/mse_tables.h (fixed point, with the proof); search_mse() in cuda/device/search.cuh.
/// - hessian_cost(): cpu/encode_hessian.cc; cuda/hessian_bounds.cuh, hessian_lanes.cuh and
///   hessian_tiles.cuh.
/// - cheapest_scale(): mse_scale_exact() in cpu/encode-inl.h; search_exactly() in
///   cuda/device/search.cuh; the files of block_cost() and hessian_cost().
/// - global_scale_for(): MeasuredScale in cuda/device/fast_math.cuh.
/// docs/numerics.md has all formulas in words.
namespace nvfp4 {

inline constexpr float kSixth = 1.0f / 6.0f;
inline constexpr int kLargestBlock = 32;
/// The limit of min(|x| · divisor, limit), on which costs are measured. Above it the largest scale
/// is the best one for every value, and infinities stay comparable.
inline constexpr float kCostClamp = 16384.0f;

/// Returns the largest block scale for which a measured global scale leaves room.
NVFP4_HD constexpr float largest_scale(Quantizer q) {
  return q == Quantizer::max ? E4M3::kMax : 256.0f;
}

/// Returns the global scale for the largest magnitude `amax`. NaN counts as 0.
NVFP4_HD constexpr GlobalScale global_scale_for(float amax, Quantizer q) {
  const float largest = E2M1::kMax * largest_scale(q);
  const float divisor = largest / amax;
  if (!(amax > 0) || divisor == 0) return {1.0f, 1.0f};
  if (divisor > FLT_MAX) return {1.0f / FLT_MAX, FLT_MAX};
  return {amax / largest, divisor};
}

/// Returns the block scale that maps `amax` to 1 / `reciprocal` (6 or 4). Source:
/// TransformerEngine, core_nvfp4.cuh.
NVFP4_HD constexpr E4M3 scale_for(float amax, float divisor, float reciprocal) {
  const float scale = amax * (divisor * reciprocal);
  return E4M3::from_float(scale < FLT_MAX ? scale : FLT_MAX);
}

/// Returns the factor of an element before it is rounded to E2M1.
NVFP4_HD constexpr float element_factor(float scale, float divisor) {
  const float factor = 1.0f / (scale * (1.0f / divisor));
  return factor < FLT_MAX ? factor : FLT_MAX;  // if the scale is 0
}
NVFP4_HD constexpr float element_factor(E4M3 scale, float divisor) {
  return element_factor(scale.to_float(), divisor);
}

/// Returns the largest magnitude. NaN is ignored.
NVFP4_HD constexpr float block_amax(const float* x, int block) {
  float amax = 0;
  for (int i = 0; i < block; ++i) {
    const float a = x[i] < 0 ? -x[i] : x[i];
    if (a > amax) amax = a;
  }
  return amax;
}

/// Returns |x| in units of the global scale, as the costs use it. NaN counts as 0.
NVFP4_HD constexpr float cost_magnitude(float x, float divisor) {
  const float u = (x < 0 ? -x : x) * divisor;
  if (!(u >= 0)) return 0;
  return u < kCostClamp ? u : kCostClamp;
}

/// Returns the E2M1 magnitude nearest to u / scale. It is found without division: the thresholds
/// times an E4M3 scale are exact.
NVFP4_HD constexpr float nearest_magnitude(float u, float scale) {
  const float half_steps = 1.0f * (u > 0.25f * scale) + (u > 0.75f * scale) + (u > 1.25f * scale) +
                           (u > 1.75f * scale) + 2 * (u > 2.5f * scale) + 2 * (u > 3.5f * scale) +
                           4 * (u > 5.0f * scale);
  return 0.5f * half_steps;
}

/// Returns Σ w (u − q·scale)² with the nearest codes q, in four interleaved sums. `weights` may be
/// null.
NVFP4_HD constexpr float block_cost(const float* u, const float* weights, int block, float scale) {
  float sum[4] = {0, 0, 0, 0};
  for (int i = 0; i < block; ++i) {
    const float d = u[i] - nearest_magnitude(u[i], scale) * scale;
    const float square = weights ? weights[i] * d * d : d * d;
    sum[i % 4] = sum[i % 4] + square;
  }
  return (sum[0] + sum[1]) + (sum[2] + sum[3]);
}

/// Returns rᵀ H r. Row i of H is at h + i · stride; only the lower triangle with the diagonal is
/// read. There are four interleaved sums over i. Inner sums start at zero and run upwards. Rounding
/// may give a result below zero.
NVFP4_HD constexpr float hessian_form(const float* r, const float* h, std::int64_t stride,
                                      int block) {
  float sum[4] = {0, 0, 0, 0};
  for (int i = 0; i < block; ++i) {
    float inner = 0;
    for (int j = 0; j < i; ++j) inner = inner + h[i * stride + j] * r[j];
    sum[i % 4] = sum[i % 4] + r[i] * (h[i * stride + i] * r[i] + 2.0f * inner);
  }
  return (sum[0] + sum[1]) + (sum[2] + sum[3]);
}

/// Returns |q| for the code that the encoder gives x. NaN counts as 0.
NVFP4_HD constexpr float encoded_magnitude(float x, float factor) {
  const float magnitude = x < 0 ? -x : x;
  return magnitude >= 0 ? E2M1::from_float(magnitude * factor).to_float() : 0.0f;
}

/// Returns the same cost with the Hessian: r = u − q·scale with the codes q of encode_elements().
/// The nearest codes would be wrong. At a tie, or within a rounding of one, the sign of r depends
/// on the code that is written.
NVFP4_HD constexpr float hessian_cost(const float* x, const float* h, std::int64_t stride,
                                      int block, float scale, float divisor) {
  const float factor = element_factor(scale, divisor);
  float r[kLargestBlock] = {};
  for (int i = 0; i < block; ++i) {
    const float d = cost_magnitude(x[i], divisor) - encoded_magnitude(x[i], factor) * scale;
    r[i] = x[i] < 0 ? -d : d;
  }
  return hessian_form(r, h, stride, block);
}

/// Returns the cheapest of all 126 scales, the lowest on a tie. A NaN never wins, but is kept if it
/// is the cost of the first scale.
template <class Cost>
NVFP4_HD constexpr E4M3 cheapest_scale(Cost&& cost) {
  E4M3 best{1};
  float best_cost = cost(best.to_float());
  for (std::uint8_t code = 2; code <= E4M3::kMaxBits; ++code) {
    const float c = cost(E4M3{code}.to_float());
    if (c < best_cost) {
      best_cost = c;
      best = {code};
    }
  }
  return best;
}

/// Returns the scale that `quantizer` chooses. This is a definition, not fast code: mse tries all
/// 126 scales.
NVFP4_HD constexpr E4M3 choose_scale(Quantizer quantizer, const float* x, const float* weights,
                                     int block, float divisor) {
  const float amax = block_amax(x, block);
  const E4M3 six = scale_for(amax, divisor, kSixth);
  if (quantizer == Quantizer::max) return six;

  float u[kLargestBlock] = {};
  for (int i = 0; i < block; ++i) u[i] = cost_magnitude(x[i], divisor);
  if (quantizer == Quantizer::four_over_six) {
    const E4M3 four = scale_for(amax, divisor, 0.25f);
    return block_cost(u, weights, block, four.to_float()) <
                   block_cost(u, weights, block, six.to_float())
               ? four
               : six;
  }
  return cheapest_scale([&](float scale) { return block_cost(u, weights, block, scale); });
}

/// Returns the scale that mse chooses with the Hessian of the block.
NVFP4_HD constexpr E4M3 choose_scale_hessian(const float* x, const float* h, std::int64_t stride,
                                             int block, float divisor) {
  return cheapest_scale(
      [&](float scale) { return hessian_cost(x, h, stride, block, scale, divisor); });
}

/// Writes the codes of one block, with the element of the even index in the low nibble.
NVFP4_HD constexpr void encode_elements(const float* x, int block, E4M3 scale, float divisor,
                                        std::uint8_t* codes) {
  const float factor = element_factor(scale, divisor);
  for (int i = 0; i < block; i += 2)
    codes[i / 2] = static_cast<std::uint8_t>(E2M1::from_float(x[i] * factor).bits |
                                             E2M1::from_float(x[i + 1] * factor).bits << 4);
}

/// Returns a dequantized element. q · scale is exact; the product with the global scale rounds
/// once.
NVFP4_HD constexpr float decode_element(E2M1 code, E4M3 scale, float global_scale) {
  return code.to_float() * scale.to_float() * global_scale;
}

}  // namespace nvfp4
