#pragma once

#include <cfloat>
#include <cstdint>

#include "nvfp4/format.h"
#include "nvfp4/quantize.h"

/// THE formulas of quantization: every backend either calls these or is tested to give their bits.
/// IEEE single operations only, none of them fused, so that SSE4, AVX, NEON and GPUs agree.
/// docs/numerics.md says them in words.
namespace nvfp4 {

inline constexpr float kSixth = 1.0f / 6.0f;
inline constexpr int kLargestBlock = 32;
/// Costs are measured on min(|x| · divisor, this): beyond it the largest scale is the best one
/// whatever the value is, and infinities stay comparable.
inline constexpr float kCostClamp = 16384.0f;

/// The largest block scale that a measured global scale leaves room for.
NVFP4_HD constexpr float largest_scale(Quantizer q) {
  return q == Quantizer::max ? E4M3::kMax : 256.0f;
}

/// The measured global scale of what has the largest magnitude `amax`; NaN counts as 0.
NVFP4_HD constexpr GlobalScale global_scale_for(float amax, Quantizer q) {
  const float largest = E2M1::kMax * largest_scale(q);
  const float divisor = largest / amax;
  if (!(amax > 0) || divisor == 0) return {1.0f, 1.0f};
  if (divisor > FLT_MAX) return {1.0f / FLT_MAX, FLT_MAX};
  return {amax / largest, divisor};
}

/// The block scale that maps `amax` to 1 / `reciprocal` (6 or 4). Source: TransformerEngine,
/// core_nvfp4.cuh.
NVFP4_HD constexpr E4M3 scale_for(float amax, float divisor, float reciprocal) {
  const float scale = amax * (divisor * reciprocal);
  return E4M3::from_float(scale < FLT_MAX ? scale : FLT_MAX);
}

/// What an element is multiplied by before it is rounded to E2M1.
NVFP4_HD constexpr float element_factor(float scale, float divisor) {
  const float factor = 1.0f / (scale * (1.0f / divisor));
  return factor < FLT_MAX ? factor : FLT_MAX;  // scale 0
}
NVFP4_HD constexpr float element_factor(E4M3 scale, float divisor) {
  return element_factor(scale.to_float(), divisor);
}

/// Largest magnitude; NaN is ignored.
NVFP4_HD constexpr float block_amax(const float* x, int block) {
  float amax = 0;
  for (int i = 0; i < block; ++i) {
    const float a = x[i] < 0 ? -x[i] : x[i];
    if (a > amax) amax = a;
  }
  return amax;
}

/// |x| in units of the global scale, as the costs see it. NaN counts as 0.
NVFP4_HD constexpr float cost_magnitude(float x, float divisor) {
  const float u = (x < 0 ? -x : x) * divisor;
  if (!(u >= 0)) return 0;
  return u < kCostClamp ? u : kCostClamp;
}

/// The E2M1 magnitude nearest to u / scale, decided without division: the thresholds times an
/// E4M3 scale are exact.
NVFP4_HD constexpr float nearest_magnitude(float u, float scale) {
  const float half_steps = 1.0f * (u > 0.25f * scale) + (u > 0.75f * scale) + (u > 1.25f * scale) +
                           (u > 1.75f * scale) + 2 * (u > 2.5f * scale) + 2 * (u > 3.5f * scale) +
                           4 * (u > 5.0f * scale);
  return 0.5f * half_steps;
}

/// Σ w (u − q·scale)² with the nearest codes q, in four interleaved sums. `weights` may be null.
NVFP4_HD constexpr float block_cost(const float* u, const float* weights, int block, float scale) {
  float sum[4] = {0, 0, 0, 0};
  for (int i = 0; i < block; ++i) {
    const float d = u[i] - nearest_magnitude(u[i], scale) * scale;
    const float square = weights ? weights[i] * d * d : d * d;
    sum[i % 4] = sum[i % 4] + square;
  }
  return (sum[0] + sum[1]) + (sum[2] + sum[3]);
}

/// rᵀ H r. Row i of H is at h + i · stride; its diagonal and what is below it are read. Four
/// interleaved sums over i; the inner sums start at zero and run upwards. May round to below zero.
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

/// |q| of the code that the encoder gives x. NaN counts as 0.
NVFP4_HD constexpr float encoded_magnitude(float x, float factor) {
  const float magnitude = x < 0 ? -x : x;
  return magnitude >= 0 ? E2M1::from_float(magnitude * factor).to_float() : 0.0f;
}

/// The same with r = u − q·scale, q the codes of encode_elements(). The nearest ones would not do:
/// at a tie, and within a rounding of one, the sign of r depends on which of two codes is written.
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

/// The cheapest of all 126 scales, the lowest on a tie. A NaN never wins, nor loses if it is first.
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

/// The scale that `quantizer` chooses. Definition, not speed: mse tries all 126.
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

/// The same for mse with the Hessian of the block.
NVFP4_HD constexpr E4M3 choose_scale_hessian(const float* x, const float* h, std::int64_t stride,
                                             int block, float divisor) {
  return cheapest_scale(
      [&](float scale) { return hessian_cost(x, h, stride, block, scale, divisor); });
}

/// Codes of one block, the element with the even index in the low nibble.
NVFP4_HD constexpr void encode_elements(const float* x, int block, E4M3 scale, float divisor,
                                        std::uint8_t* codes) {
  const float factor = element_factor(scale, divisor);
  for (int i = 0; i < block; i += 2)
    codes[i / 2] = static_cast<std::uint8_t>(E2M1::from_float(x[i] * factor).bits |
                                             E2M1::from_float(x[i + 1] * factor).bits << 4);
}

/// q · scale is exact; the global scale rounds once.
NVFP4_HD constexpr float decode_element(E2M1 code, E4M3 scale, float global_scale) {
  return code.to_float() * scale.to_float() * global_scale;
}

}  // namespace nvfp4
