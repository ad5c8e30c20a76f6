#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <span>
#include <vector>

#include "gemm_cases.h"
#include "host_fragments.h"

/// Weights for tensor cores, and how far their products may be off.
namespace nvfp4::test {

/// Random codes under random scales, of every size and 0; global scales near 1.
inline QuantizedMatrix random_weights(const QuantizedShape& shape, std::uint64_t seed) {
  std::mt19937_64 rng(seed);
  QuantizedMatrix q(shape);
  for (std::int64_t i = 0; i < shape.code_bytes(); ++i)
    q.codes()[i] = static_cast<std::uint8_t>(rng());
  for (std::int64_t n = 0; n < shape.vectors(); ++n)
    for (std::int64_t b = 0; b < shape.blocks(); ++b)
      q.scales()[shape.scale_offset(n, b)] =
          static_cast<std::uint8_t>(rng() % 5 ? rng() % (E4M3::kMaxBits + 1) : rng() % 9);
  for (std::int64_t i = 0; i < shape.global_count(); ++i)
    q.global_scale()[i] = 0.5f + static_cast<float>(rng() % 1000) / 1000;
  return q;
}

/// Codes, scales and global scales, from anywhere.
inline std::vector<std::uint8_t> bytes_of(const PackedWeights& w) {
  const std::span<const std::byte> memory = w.memory();
  const auto count = static_cast<std::int64_t>(memory.size());
  Matrix host(DType::f32, 1, count / 4);
  copy(MatrixView(memory.data(), DType::f32, 1, count / 4, kDense, w.device()), host.span());
  if (w.device().type == DeviceType::cuda) synchronize(w.device());
  return {host.data<std::uint8_t>(), host.data<std::uint8_t>() + count};
}

/// Σ x_k w_k and Σ |x_k w_k| of a product.
struct Sums {
  Table sum, norm;
};
template <class X>
Sums sums_of(const X& x, const QuantizedView& w) {
  const Table xs = values_of(x), ws = values_of(w);
  Sums s{Table(xs.rows, ws.rows), Table(xs.rows, ws.rows)};
  for (std::int64_t m = 0; m < xs.rows; ++m)
    for (std::int64_t n = 0; n < ws.rows; ++n) {
      const double *a = &xs.v[static_cast<std::size_t>(m * xs.cols)],
                   *b = &ws.v[static_cast<std::size_t>(n * xs.cols)];
      double sum = 0, norm = 0;
      for (std::int64_t k = 0; k < xs.cols; ++k) {
        sum += a[k] * b[k];
        norm += std::abs(a[k] * b[k]);
      }
      s.sum(m, n) = sum;
      s.norm(m, n) = norm;
    }
  return s;
}

/// The largest |got − exact| / bound over one product; above 1 is an error. `x` and `w` on the CPU,
/// axis rows, linear scales; `bias` empty or N; `s` are their sums.
///
/// Tensor cores truncate where they add 16 products to a sum: at most an ulp of the largest of the
/// 17 for each of them, so K products and K/16 sums are off by 2^-23 (K + K/16) Σ |x_k w_k|. Then
/// the factors' three products and their product with the sum, the bias, and the rounding to `out`.
template <class X>
double worst_tensor_core_error(const Sums& s, const X& x, const QuantizedView& w,
                               const MatrixView& out, float alpha = 1,
                               std::span<const float> bias = {}) {
  const double steps = static_cast<double>(w.shape.cols) * 17 / 16;
  double worst = 0;
  for (std::int64_t m = 0; m < out.rows; ++m)
    for (std::int64_t n = 0; n < out.cols; ++n) {
      const double f = factor_of(x, m, w.global_of(n), alpha);
      const double b = bias.empty() ? 0 : static_cast<double>(bias[static_cast<std::size_t>(n)]);
      const double y = f * s.sum(m, n) + b;
      const double bound =
          1.01 * (2 * kUnit * std::abs(f) * (steps * s.norm(m, n) + 4 * std::abs(s.sum(m, n))) +
                  (kUnit + unit_of(out.dtype)) * std::abs(y)) +
          smallest_of(out.dtype);
      const double error = std::abs(static_cast<double>(out.at(m, n)) - y);
      worst = std::max(worst, std::isnan(error) ? INFINITY : error / bound);
    }
  return worst;
}
template <class X>
double worst_tensor_core_error(const X& x, const QuantizedView& w, const MatrixView& out,
                               float alpha = 1, std::span<const float> bias = {}) {
  return worst_tensor_core_error(sums_of(x, w), x, w, out, alpha, bias);
}

}  // namespace nvfp4::test
