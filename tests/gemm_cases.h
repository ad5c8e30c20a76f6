#pragma once

#include <cmath>
#include <cstring>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "nvfp4/gemm.h"
#include "test_matrices.h"

/// Operands of products, their FP64 results, and how far an FP32 result may be off.
namespace nvfp4::test {

inline constexpr double kUnit = 0x1p-24;  // half an ulp of 1 in FP32

/// [rows, cols] doubles.
struct Table {
  std::int64_t rows = 0, cols = 0;
  std::vector<double> v;
  Table(std::int64_t r, std::int64_t c) : rows(r), cols(c), v(static_cast<std::size_t>(r * c)) {}
  double& operator()(std::int64_t r, std::int64_t c) {
    return v[static_cast<std::size_t>(r * cols + c)];
  }
  double operator()(std::int64_t r, std::int64_t c) const {
    return v[static_cast<std::size_t>(r * cols + c)];
  }
};

/// e2m1 · scale, without the global scale. Axis rows, linear scales.
inline Table values_of(const QuantizedView& q) {
  Table t(q.shape.rows, q.shape.cols);
  for (std::int64_t r = 0; r < t.rows; ++r)
    for (std::int64_t c = 0; c < t.cols; ++c) {
      const int code = q.codes[(r * t.cols + c) / 2] >> (c % 2 * 4) & 0xF;
      const float scale = E4M3{q.scales[r * (t.cols / 16) + c / 16]}.to_float();
      t(r, c) = static_cast<double>(E2M1{static_cast<std::uint8_t>(code)}.to_float()) *
                static_cast<double>(scale);
    }
  return t;
}
inline Table values_of(const MatrixView& x) {
  Table t(x.rows, x.cols);
  for (std::int64_t r = 0; r < t.rows; ++r)
    for (std::int64_t c = 0; c < t.cols; ++c) t(r, c) = static_cast<double>(x.at(r, c));
  return t;
}

inline double factor_of(const MatrixView&, std::int64_t, float wg, float alpha) {
  return static_cast<double>(alpha) * static_cast<double>(wg);
}
inline double factor_of(const QuantizedView& x, std::int64_t m, float wg, float alpha) {
  return static_cast<double>(alpha) * static_cast<double>(x.global_of(m)) * static_cast<double>(wg);
}

/// Rounding errors before the sum is scaled, in units of kUnit · Σ |x_k w_k|. Any order of K
/// products and their sum, each rounded once: K + 1. Block partials of W4A4 are exact, which leaves
/// the K/16 additions.
inline double sum_roundings(const MatrixView& x) { return static_cast<double>(x.cols) + 2; }
inline double sum_roundings(const QuantizedView& x) {
  return static_cast<double>(x.shape.blocks());
}

inline double unit_of(DType t) { return t == DType::f32 ? 0 : t == DType::bf16 ? 0x1p-8 : 0x1p-11; }
inline double smallest_of(DType t) { return t == DType::f16 ? 0x1p-25 : 0x1p-140; }

/// The largest |got − exact| / bound over one product; above 1 is an error.
///
/// bound = sum_roundings u |f| Σ_k |x_k w_k| + 4 u |f Σ_k x_k w_k| + u |y| + u_out |y|: the sum;
/// the factor's two products and its product with the sum; the bias; the rounding to `out`.
template <class X>
double worst_error(const X& x, const PackedWeights& w, const MatrixView& out, float alpha = 1,
                   std::span<const float> bias = {}, std::int64_t group = 0) {
  const QuantizedMatrix unpacked = unpack_weights(w, group);
  const Table xs = values_of(x), ws = values_of(unpacked.view());
  double worst = 0;
  for (std::int64_t m = 0; m < out.rows; ++m)
    for (std::int64_t n = 0; n < out.cols; ++n) {
      double sum = 0, norm = 0;
      for (std::int64_t k = 0; k < xs.cols; ++k) {
        const double p = xs(m, k) * ws(n, k);
        sum += p;
        norm += std::abs(p);
      }
      const double f = factor_of(x, m, unpacked.view().global_of(n), alpha);
      const double b = bias.empty() ? 0 : static_cast<double>(bias[static_cast<std::size_t>(n)]);
      const double y = f * sum + b;
      const double bound =
          1.01 * (kUnit * std::abs(f) * (sum_roundings(x) * norm + 4 * std::abs(sum)) +
                  (kUnit + unit_of(out.dtype)) * std::abs(y)) +
          smallest_of(out.dtype);
      const double error = std::abs(static_cast<double>(out.at(m, n)) - y);
      worst = std::max(worst, std::isnan(error) ? INFINITY : error / bound);
    }
  return worst;
}

/// Weights [n, k] with scales from all over the range.
inline QuantizedMatrix weights(std::int64_t n, std::int64_t k, std::uint64_t seed,
                               GlobalScope scope = GlobalScope::tensor) {
  const Matrix w = make(seed % 2 ? Fill::student : Fill::gaussian, n, k, seed, DType::bf16);
  return quantize(w.view(), {.quantizer = Quantizer::max, .scope = scope});
}
inline QuantizedMatrix activations(std::int64_t m, std::int64_t k, std::uint64_t seed,
                                   GlobalScope scope = GlobalScope::tensor) {
  const Matrix x = make(seed % 2 ? Fill::laplace : Fill::student, m, k, seed + 1000);
  return quantize(x.view(), {.quantizer = Quantizer::max, .scope = scope});
}

inline std::vector<float> random_floats(std::size_t n, std::uint64_t seed) {
  std::mt19937_64 rng(seed);
  std::normal_distribution<float> normal;
  std::vector<float> v(n);
  for (float& f : v) f = normal(rng);
  return v;
}

inline bool same_bits(const Matrix& a, const Matrix& b) {
  return a.rows() == b.rows() && a.cols() == b.cols() && a.dtype() == b.dtype() &&
         (a.view().size() == 0 ||
          std::memcmp(a.data<char>(), b.data<char>(),
                      static_cast<std::size_t>(a.view().size() * dtype_size(a.dtype()))) == 0);
}

/// The arguments of a GEMM other than its operands.
struct ProductOptions {
  float alpha = 1.0f;
  std::span<const float> group_alpha = {}, bias = {};
  bool batch_invariant = false;
  std::string backend = {}, kernel = {};
};

inline std::int64_t cols_of(const MatrixView& x) { return x.cols; }
inline std::int64_t cols_of(const QuantizedView& x) { return x.shape.cols; }
inline DType dtype_of(const MatrixView& x) { return x.dtype; }
inline DType dtype_of(const QuantizedView&) { return DType::bf16; }
inline Scheme scheme_of(const MatrixView&) { return Scheme::w4a16; }
inline Scheme scheme_of(const QuantizedView&) { return Scheme::w4a4; }

/// A product on the CPU as its operands say it.
template <class X>
GemmDescription describe(const X& x, const PackedWeights& w, const MatrixSpan& out,
                         const ProductOptions& o, GemmForm form) {
  return {.m = out.rows,
          .form = form,
          .scheme = scheme_of(x),
          .x = dtype_of(x),
          .out = out.dtype,
          .shared_x = form == GemmForm::every_group && cols_of(x) == w.cols(),
          .batch_invariant = o.batch_invariant,
          .kernel = o.kernel,
          .backend = o.backend};
}
template <class X>
void product_into(const X& x, const PackedWeights& w, MatrixSpan out, const ProductOptions& o = {},
                  GemmForm form = GemmForm::dense, std::span<const std::int32_t> row_ends = {}) {
  gemm(plan_gemm(w, describe(x, w, out, o, form)), {.x = x,
                                                    .weights = w,
                                                    .out = out,
                                                    .alpha = o.alpha,
                                                    .group_alpha = o.group_alpha,
                                                    .bias = o.bias,
                                                    .row_ends = row_ends});
}
inline Matrix product(const MatrixView& x, const PackedWeights& w, DType out = DType::f32,
                      const ProductOptions& o = {}) {
  Matrix y(out, x.rows, w.rows());
  product_into(x, w, y.span(), o);
  return y;
}
inline Matrix product(const QuantizedView& x, const PackedWeights& w, DType out = DType::f32,
                      const ProductOptions& o = {}) {
  Matrix y(out, x.shape.rows, w.rows());
  product_into(x, w, y.span(), o);
  return y;
}

}  // namespace nvfp4::test
