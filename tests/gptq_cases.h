#pragma once

#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "backends/backend.h"
#include "nvfp4/quantize.h"
#include "quantizers/gptq.h"
#include "test_matrices.h"

/// Layers whose weights are quantized by a Gram matrix.
namespace nvfp4::test {

/// Inputs whose channels are correlated and of different size, and what they add up to.
struct GptqLayer {
  std::int64_t depth;
  std::vector<double> gram;      // [K, K]
  std::vector<double> triangle;  // its upper one

  GptqLayer(std::int64_t k, std::int64_t tokens, unsigned seed = 1)
      : depth(k), gram(static_cast<std::size_t>(k * k)) {
    std::mt19937_64 rng(seed);
    std::normal_distribution<double> normal;
    std::vector<double> size(static_cast<std::size_t>(k)), x(static_cast<std::size_t>(k));
    for (double& s : size) s = std::exp(normal(rng));
    for (std::int64_t t = 0; t < tokens; ++t) {
      double before = 0;
      for (std::size_t i = 0; i < x.size(); ++i) {
        before = 0.8 * before + normal(rng);
        x[i] = size[i] * before;
      }
      for (std::size_t i = 0; i < x.size(); ++i)
        for (std::size_t j = 0; j < x.size(); ++j) gram[i * x.size() + j] += x[i] * x[j];
    }
    for (std::int64_t i = 0; i < k; ++i)
      for (std::int64_t j = i; j < k; ++j)
        triangle.push_back(gram[static_cast<std::size_t>(i * k + j)]);
  }

  /// ‖X (w - ŵ)‖² of every row, in FP64.
  std::vector<double> errors(const MatrixView& w, const QuantizedMatrix& q) const {
    const Matrix decoded = dequantize(q.view(), DType::f32);
    std::vector<double> sums;
    for (std::int64_t r = 0; r < w.rows; ++r) {
      double sum = 0;
      for (std::int64_t i = 0; i < depth; ++i)
        for (std::int64_t j = 0; j < depth; ++j)
          sum += gram[static_cast<std::size_t>(i * depth + j)] *
                 static_cast<double>(w.at(r, i) - decoded.view().at(r, i)) *
                 static_cast<double>(w.at(r, j) - decoded.view().at(r, j));
      sums.push_back(sum);
    }
    return sums;
  }
};

struct GptqResult {
  QuantizedMatrix mse, weighted, best;
  std::vector<std::uint8_t> chosen;
  std::vector<double> errors;  ///< of each candidate of each row
};

inline GptqResult run_gptq(const GramFactor& factor, const MatrixView& w, int sweeps,
                           const std::string& backend) {
  const GlobalScale global = GlobalScale::from_amax(amax(w), Quantizer::mse);
  QuantizeOptions options{.quantizer = Quantizer::mse, .global = {&global, 1}};
  GptqResult result{quantize(w, options),
                    {},
                    {},
                    std::vector<std::uint8_t>(static_cast<std::size_t>(w.rows)),
                    std::vector<double>(static_cast<std::size_t>(w.rows) * kGptqCandidates)};
  options.weights = factor.weights;
  result.weighted = quantize(w, options);
  result.best = quantize(w, options);
  const GptqJob job{.gram = &factor,
                    .x = static_cast<const float*>(w.data),
                    .rows = w.rows,
                    .divisor = global.divisor,
                    .sweeps = sweeps,
                    .mse_codes = result.mse.codes(),
                    .mse_scales = result.mse.scales(),
                    .codes = result.best.span().codes,
                    .scales = result.best.span().scales,
                    .chosen = result.chosen.data(),
                    .errors = result.errors.data()};
  find_backend(backend).gptq(job, 0, w.rows);
  return result;
}

struct GptqCase {
  std::int64_t rows, depth;
  int sweeps;
  Fill fill;
};
// More rows than a panel, more columns than a batch, and neither a multiple of its size.
inline constexpr GptqCase kGptqCases[] = {{66, 160, 2, Fill::gaussian},
                                          {3, 16, 0, Fill::student},
                                          {5, 272, 1, Fill::sparse},
                                          {2, 48, 3, Fill::tiny},
                                          {1, 32, 1, Fill::zero}};

}  // namespace nvfp4::test
