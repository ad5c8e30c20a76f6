#pragma once

#include "layers/layer_cases.h"
#include "nvfp4/moe.h"
#include "testing.h"

namespace nvfp4::test {

/// NVFP4 matrices of one expert.
struct ExpertMatrices {
  QuantizedMatrix gate, up, down;
  std::optional<GlobalScale> input_scale, down_scale;

  ExpertWeights weights() const {
    ExpertWeights w{gate.view(), up.view(), down.view()};
    w.gate.input_scale = w.up.input_scale = input_scale;
    w.down.input_scale = down_scale;
    return w;
  }
};

/// `rows`: a global scale for each row, orders of magnitude apart.
inline ExpertMatrices expert(std::int64_t k, std::int64_t i, std::uint64_t seed, bool rows) {
  const auto make_weights = [&](std::int64_t n, std::int64_t depth, std::uint64_t s) {
    if (!rows) return weights(n, depth, s);
    QuantizedMatrix q = weights(n, depth, s, GlobalScope::vector);
    for (std::int64_t r = 0; r < n; ++r)
      q.global_scale()[r] *= std::ldexp(1.0f, static_cast<int>(r % 9) - 4);
    return q;
  };
  return {make_weights(i, k, 3 * seed + 1),
          make_weights(i, k, 3 * seed + 2),
          make_weights(k, i, 3 * seed + 3),
          {},
          {}};
}

struct MoeCase {
  std::vector<ExpertMatrices> routed, shared;
  std::int64_t top_k = 3;
  std::vector<std::int64_t> ids;
  std::vector<float> weights;

  /// Creates a case in which the last two of `experts` experts get no rows.
  MoeCase(std::int64_t tokens, std::int64_t k, std::int64_t i, bool rows = false,
          std::size_t experts = 6, std::size_t shared_experts = 1) {
    for (std::size_t e = 0; e < experts; ++e) routed.push_back(expert(k, i, e, rows));
    for (std::size_t e = 0; e < shared_experts; ++e)
      shared.push_back(expert(k, i + 16, 100 + e, rows));
    std::mt19937_64 rng(static_cast<std::uint64_t>(tokens) + 5);
    for (std::int64_t p = 0; p < tokens * top_k; ++p)
      ids.push_back(static_cast<std::int64_t>(rng() % (experts - 2)));  // some ids twice in a row
    weights = random_floats(ids.size(), 77);
  }

  Routing routing() const {
    return {.ids = ids.data(),
            .id_type = IndexType::i64,
            .id_stride = top_k,
            .weights = weights.data(),
            .weight_stride = top_k,
            .rows = static_cast<std::int64_t>(ids.size()) / top_k,
            .top_k = top_k};
  }
  Moe moe(const MoeOptions& options) const {
    std::vector<ExpertWeights> r, s;
    for (const ExpertMatrices& e : routed) r.push_back(e.weights());
    for (const ExpertMatrices& e : shared) s.push_back(e.weights());
    return Moe(r, s, options);
  }
};

template <class X>
Matrix run(const Moe& moe, const X& x, const Routing& routing, DType out = DType::f32) {
  Matrix y(out, routing.rows, moe.hidden());
  std::fill_n(y.data<std::uint8_t>(), y.rows() * y.cols() * dtype_size(out), std::uint8_t{0x5A});
  moe.forward_into(x, routing, y.span());
  return y;
}

/// Row t of a quantized matrix, copied.
inline QuantizedMatrix row_of(const QuantizedView& q, std::int64_t t) {
  QuantizedMatrix row({.rows = 1, .cols = q.shape.cols});
  std::memcpy(row.codes(), q.codes + t * q.shape.cols / 2,
              static_cast<std::size_t>(q.shape.cols / 2));
  std::memcpy(row.scales(), q.scales + t * q.shape.blocks(),
              static_cast<std::size_t>(q.shape.blocks()));
  *row.global_scale() = q.global_of(t);
  return row;
}

/// One quantized row through one expert on the reference backend: two products, SwiGLU, its
/// quantization as `down` says, a product.
inline std::vector<float> naive_expert(const ExpertMatrices& e, const QuantizedView& row,
                                       float limit, const QuantizeOptions& down) {
  const ProductOptions reference{.backend = "reference"};
  const Matrix gate = product(row, pack_weights(e.gate.view()), DType::f32, reference);
  const Matrix up = product(row, pack_weights(e.up.view()), DType::f32, reference);
  Matrix both(DType::f32, 1, 2 * gate.cols());
  std::copy_n(gate.data<float>(), gate.cols(), both.data<float>());
  std::copy_n(up.data<float>(), gate.cols(), both.data<float>() + gate.cols());
  QuantizeOptions o = down;
  o.backend = "reference";
  const QuantizedActivation h = swiglu_quantize(both.view(), {.limit = limit}, o);
  const Matrix y = product(h.view(), pack_weights(e.down.view()), DType::f32, reference);
  return {y.data<float>(), y.data<float>() + y.cols()};
}

/// W4A4, one token and one expert at a time. `down(e)`: how the input of expert e's down is
/// quantized; e is -1 for shared ones.
template <class Down>
Matrix naive_moe(const MoeCase& c, const QuantizedView& x, float limit, Down&& down) {
  Matrix out(DType::f32, x.shape.rows, x.shape.cols);
  for (std::int64_t t = 0; t < x.shape.rows; ++t) {
    const QuantizedMatrix row = row_of(x, t);
    float* to = out.data<float>() + t * out.cols();
    const auto add = [&](const ExpertMatrices& e, std::int64_t index, float weight) {
      const std::vector<float> y = naive_expert(e, row.view(), limit, down(index));
      for (std::size_t i = 0; i < y.size(); ++i) to[i] += weight * y[i];
    };
    for (const ExpertMatrices& e : c.shared) add(e, -1, 1.0f);
    for (std::int64_t k = 0; k < c.top_k; ++k) {
      const auto pair = static_cast<std::size_t>(t * c.top_k + k);
      add(c.routed[static_cast<std::size_t>(c.ids[pair])], c.ids[pair], c.weights[pair]);
    }
  }
  return out;
}

/// W4A16 on `backend`, one token and one expert at a time, batch-invariant.
inline Matrix naive_moe(const MoeCase& c, const MatrixView& x, const MoeOptions& options) {
  const ProductOptions gemm_options{.batch_invariant = true, .backend = options.backend};
  Matrix out(DType::f32, x.rows, x.cols);
  for (std::int64_t t = 0; t < x.rows; ++t) {
    MatrixView row = x;
    row.data = static_cast<const char*>(x.data) + t * x.stride * dtype_size(x.dtype);
    row.rows = 1;
    const auto add = [&](const ExpertMatrices& e, float weight) {
      const std::vector<QuantizedView> parts = {e.gate.view(), e.up.view()};
      const Matrix both = product(row, pack_weights(parts), DType::f32, gemm_options);
      Matrix h(options.intermediate, 1, both.cols() / 2);
      swiglu_into(both.view(), h.span(), {.limit = options.swiglu_limit},
                  {.backend = options.backend});
      const Matrix y = product(h.view(), pack_weights(e.down.view()), DType::f32, gemm_options);
      for (std::int64_t i = 0; i < y.cols(); ++i)
        out.data<float>()[t * x.cols + i] += weight * y.data<float>()[i];
    };
    for (const ExpertMatrices& e : c.shared) add(e, 1.0f);
    for (std::int64_t k = 0; k < c.top_k; ++k) {
      const auto pair = static_cast<std::size_t>(t * c.top_k + k);
      add(c.routed[static_cast<std::size_t>(c.ids[pair])], c.weights[pair]);
    }
  }
  return out;
}

/// A value and how far a computed one may be off.
struct Bounded {
  double value = 0, error = 0;
};

/// Row t of x (W4A16) times w, exact, with the bound of worst_error() in gemm_cases.h; the errors
/// of x itself add up by the triangle inequality. On tensor cores that of worst_tensor_core_error()
/// in fragment_cases.h.
inline std::vector<Bounded> bounded_product(const std::vector<Bounded>& x, const QuantizedView& w,
                                            bool tensor_cores = false) {
  const Table values = values_of(w);
  std::vector<Bounded> y;
  for (std::int64_t n = 0; n < values.rows; ++n) {
    double sum = 0, norm = 0, spread = 0;
    for (std::int64_t k = 0; k < values.cols; ++k) {
      const Bounded& b = x[static_cast<std::size_t>(k)];
      sum += b.value * values(n, k);
      norm += (std::abs(b.value) + b.error) * std::abs(values(n, k));
      spread += b.error * b.error * values(n, k) * values(n, k);
    }
    const double f = static_cast<double>(w.global_of(n));
    const double k_size = static_cast<double>(values.cols);
    const double roundings = tensor_cores ? 2 * (k_size * 17 / 16 + 4) : 2 * std::sqrt(k_size + 6);
    y.push_back({f * sum, std::abs(f) * (2 * std::sqrt(spread) + kUnit * roundings * norm)});
  }
  return y;
}

/// SwiGLU, rounded to `type`. silu is 1.1-Lipschitz, clamping 1-Lipschitz.
inline std::vector<Bounded> bounded_swiglu(const std::vector<Bounded>& gate,
                                           const std::vector<Bounded>& up, double limit,
                                           DType type) {
  std::vector<Bounded> h;
  for (std::size_t i = 0; i < gate.size(); ++i) {
    const double g = std::min(gate[i].value, limit);
    const double u = std::clamp(up[i].value, -limit, limit);
    const double silu = g / (1 + std::exp(-g)), value = silu * u;
    const double error =
        1.1 * gate[i].error * (std::abs(u) + up[i].error) + std::abs(silu) * up[i].error;
    const double most = std::abs(value) + error;
    h.push_back({value, error + 8 * kUnit * most + unit_of(type) * most + smallest_of(type)});
  }
  return h;
}

/// The largest |got − exact| / bound of W4A16; above 1 is an error. On tensor cores results of the
/// routed experts are rounded to BF16 if out is.
inline double worst_moe_error(const MoeCase& c, const MatrixView& x, const MatrixView& got,
                              float limit, DType intermediate, bool tensor_cores = false) {
  double worst = 0;
  for (std::int64_t t = 0; t < x.rows; ++t) {
    std::vector<Bounded> row, sum(static_cast<std::size_t>(x.cols));
    std::vector<double> norm(sum.size());
    for (std::int64_t k = 0; k < x.cols; ++k) row.push_back({static_cast<double>(x.at(t, k)), 0});
    const auto add = [&](const ExpertMatrices& e, double weight, DType result) {
      std::vector<Bounded> y =
          bounded_product(bounded_swiglu(bounded_product(row, e.gate.view(), tensor_cores),
                                         bounded_product(row, e.up.view(), tensor_cores),
                                         static_cast<double>(limit), intermediate),
                          e.down.view(), tensor_cores);
      for (std::size_t i = 0; i < y.size(); ++i) {
        if (result != DType::f32)
          y[i].error += unit_of(result) * (std::abs(y[i].value) + y[i].error) + smallest_of(result);
        sum[i].value += weight * y[i].value;
        sum[i].error += std::abs(weight) * y[i].error;
        norm[i] += std::abs(weight) * (std::abs(y[i].value) + y[i].error);
      }
    };
    for (const ExpertMatrices& e : c.shared) add(e, 1, DType::f32);
    for (std::int64_t k = 0; k < c.top_k; ++k) {
      const auto pair = static_cast<std::size_t>(t * c.top_k + k);
      add(c.routed[static_cast<std::size_t>(c.ids[pair])], static_cast<double>(c.weights[pair]),
          tensor_cores && got.dtype == DType::bf16 ? DType::bf16 : DType::f32);
    }
    const double terms = static_cast<double>(c.top_k) + static_cast<double>(c.shared.size()) + 1;
    for (std::size_t i = 0; i < sum.size(); ++i) {
      const double value = sum[i].value;
      const double bound = sum[i].error + terms * kUnit * norm[i] +
                           unit_of(got.dtype) * (std::abs(value) + sum[i].error) +
                           smallest_of(got.dtype);
      const double error =
          std::abs(static_cast<double>(got.at(t, static_cast<std::int64_t>(i))) - value);
      worst = std::max(worst, std::isnan(error) ? INFINITY : error / (1.01 * bound));
    }
  }
  return worst;
}

}  // namespace nvfp4::test
