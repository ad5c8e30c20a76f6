#pragma once

#include <cstdint>
#include <vector>

#include "nvfp4/format.h"
#include "quantizers/encode_block.h"
#include "quantizers/gram_factor.h"
#include "quantizers/row_math.h"

/// The definition of quantization with a Gram matrix, one row of a weight at a time. GPTQ with
/// given block scales is followed by joint descent over scales and codes. The arithmetic is single
/// precision, with fused multiply-add where `fused` is called, and sums in the order of the loops.
/// Every backend gives the same bits. Source: arXiv:2210.17323 (GPTQ), arXiv:2507.18553 (as Babai's
/// algorithm); docs/numerics.md.
namespace nvfp4 {

/// Rows of a weight with one global scale.
struct GptqJob {
  const GramFactor* gram = nullptr;
  const float* x = nullptr;  ///< [rows, K]
  std::int64_t rows = 0;
  float divisor = 1;
  int sweeps = 0;  ///< largest number of sweeps of the descent
  /// The result of plain mse: codes [rows, K / 2] and scales [rows, K / 16].
  const std::uint8_t *mse_codes = nullptr, *mse_scales = nullptr;
  /// The result of mse weighted by the diagonal. It is replaced by the best candidate.
  std::uint8_t *codes = nullptr, *scales = nullptr;
  std::uint8_t* chosen = nullptr;  ///< [rows]: index of the best candidate
  /// The output error of each candidate, see output_error(): [rows, kGptqCandidates].
  double* errors = nullptr;
};

/// The candidates. On a tie the first one wins.
enum class GptqCandidate : std::uint8_t { mse, weighted, gptq, descent };
inline constexpr int kGptqCandidates = 4;
/// Number of rows that a backend should process together.
inline constexpr std::int64_t kGptqPanel = 64;
inline constexpr int kScaleNeighbours = 16;  ///< scales that descent tries: codes c - 8 to c + 7

/// A row in units of the global scale: x̂ = values. Each block of 16 values is codes · scale.
struct GptqRow {
  std::vector<float> values;
  std::vector<std::uint8_t> scales;
};

/// Returns the value of the nearest code times scale.
inline float nearest_value(float wanted, float scale, float reciprocal) {
  return E2M1::from_float(wanted * reciprocal).to_float() * scale;
}

/// Quantizes the columns in the order of falling diagonal. The error of each column is compensated
/// in the columns that follow.
inline void gptq_row(const GramFactor& gram, const std::vector<float>& u, GptqRow& row) {
  const std::int64_t depth = gram.depth;
  std::vector<float> wanted;
  wanted.reserve(u.size());
  for (const std::int32_t c : gram.order) wanted.push_back(u[static_cast<std::size_t>(c)]);
  for (std::size_t p = 0; p < wanted.size(); ++p) {
    const auto c = static_cast<std::size_t>(gram.order[p]);
    const float scale = E4M3{row.scales[c / kBlock]}.to_float();
    row.values[c] = nearest_value(wanted[p], scale, 1.0f / scale);
    const float error = -((wanted[p] - row.values[c]) * gram.reciprocal[p]);
    const float* upper = gram.upper.data() + static_cast<std::int64_t>(p) * depth;
    for (std::size_t k = p + 1; k < wanted.size(); ++k)
      wanted[k] = fused(error, upper[k], wanted[k]);
  }
}

/// Returns H (x̂ - u).
inline std::vector<float> gradient_of(const GramFactor& gram, const std::vector<float>& u,
                                      const GptqRow& row) {
  std::vector<float> gradient(u.size(), 0.0f);
  for (std::size_t j = 0; j < u.size(); ++j) {
    const float d = row.values[j] - u[j];
    const float* h = gram.gram.data() + static_cast<std::int64_t>(j) * gram.depth;
    for (std::size_t k = 0; k < u.size(); ++k) gradient[k] = fused(d, h[k], gradient[k]);
  }
  return gradient;
}

/// Returns (x̂ - u)ᵀ H (x̂ - u) without the damping.
inline double output_error(const GramFactor& gram, const std::vector<float>& u, const GptqRow& row,
                           const std::vector<float>& gradient) {
  double sum = 0;
  for (std::size_t k = 0; k < u.size(); ++k) {
    const float d = row.values[k] - u[k];
    sum += static_cast<double>(d) * static_cast<double>(fused(-gram.damping, d, gradient[k]));
  }
  return sum;
}

/// Finds the best of 16 scales and its codes for one block while all other blocks stay. Returns
/// false if none is better. `gradient`, `values` and `changes` have the block's 16 columns.
inline bool descend_block(const GramFactor& gram, std::int64_t block, const float* gradient,
                          float* values, std::uint8_t& scale, float* changes) {
  const float* inverse = gram.block_inverse.data() + block * kBlock * kBlock;
  const float* upper = gram.block_upper.data() + block * kBlock * kBlock;
  const float* reciprocal = gram.block_reciprocal.data() + block * kBlock;
  float target[kBlock], best[kBlock] = {}, cost = 0;
  for (int i = 0; i < kBlock; ++i) {
    float step = 0;
    for (int j = 0; j < kBlock; ++j) step = fused(inverse[i * kBlock + j], gradient[j], step);
    cost = fused(gradient[i], step, cost);
    target[i] = values[i] - step;
  }
  cost = cost * (1 - 0x1p-16f);  // a smaller reduction is rounding
  int best_code = -1;
  for (int n = 0; n < kScaleNeighbours; ++n) {
    int code = scale + n - kScaleNeighbours / 2;
    code = code < 1 ? 1 : code > E4M3::kMaxBits ? E4M3::kMaxBits : code;
    const float s = E4M3{static_cast<std::uint8_t>(code)}.to_float(), r = 1.0f / s;
    float wanted[kBlock], found[kBlock], sum = 0;
    for (int i = 0; i < kBlock; ++i) wanted[i] = target[i];
    for (int i = 0; i < kBlock; ++i) {
      found[i] = nearest_value(wanted[i], s, r);
      const float error = -((wanted[i] - found[i]) * reciprocal[i]);
      sum = fused(error, error, sum);
      for (int k = i + 1; k < kBlock; ++k)
        wanted[k] = fused(error, upper[i * kBlock + k], wanted[k]);
    }
    if (!(sum < cost)) continue;
    cost = sum;
    best_code = code;
    for (int i = 0; i < kBlock; ++i) best[i] = found[i];
  }
  if (best_code < 0) return false;
  scale = static_cast<std::uint8_t>(best_code);
  for (int i = 0; i < kBlock; ++i) {
    changes[i] = best[i] - values[i];
    values[i] = best[i];
  }
  return true;
}

/// Descends block by block until nothing improves. Updates `gradient`.
inline void descend_row(const GramFactor& gram, int sweeps, GptqRow& row,
                        std::vector<float>& gradient) {
  for (int sweep = 0; sweep < sweeps; ++sweep) {
    bool changed = false;
    for (std::int64_t b = 0; b < gram.depth / kBlock; ++b) {
      float changes[kBlock];
      if (!descend_block(gram, b, gradient.data() + b * kBlock, row.values.data() + b * kBlock,
                         row.scales[static_cast<std::size_t>(b)], changes))
        continue;
      changed = true;
      for (int i = 0; i < kBlock; ++i) {
        const float* h = gram.gram.data() + (b * kBlock + i) * gram.depth;
        for (std::size_t k = 0; k < gradient.size(); ++k)
          gradient[k] = fused(changes[i], h[k], gradient[k]);
      }
    }
    if (!changed) return;
  }
}

/// Quantizes row `r` of the job with the candidate of the least output error.
inline void quantize_gptq_row(const GptqJob& job, std::int64_t r) {
  const GramFactor& gram = *job.gram;
  const auto depth = static_cast<std::size_t>(gram.depth), blocks = depth / kBlock;
  std::vector<float> u(depth);
  for (std::size_t k = 0; k < depth; ++k)
    u[k] = job.x[r * gram.depth + static_cast<std::int64_t>(k)] * job.divisor;
  const auto decoded = [&](const std::uint8_t* codes, const std::uint8_t* scales) {
    GptqRow row{std::vector<float>(depth), {}};
    scales += r * static_cast<std::int64_t>(blocks);
    codes += r * gram.depth / 2;
    row.scales.assign(scales, scales + blocks);
    for (std::size_t k = 0; k < depth; ++k)
      row.values[k] =
          E2M1{static_cast<std::uint8_t>(codes[k / 2] >> (k % 2 * 4) & 0xF)}.to_float() *
          E4M3{scales[k / kBlock]}.to_float();
    return row;
  };
  GptqRow rows[kGptqCandidates] = {decoded(job.mse_codes, job.mse_scales),
                                   decoded(job.codes, job.scales)};
  double* const errors = job.errors + r * kGptqCandidates;
  for (int c = 0; c < 2; ++c)
    errors[c] = output_error(gram, u, rows[c], gradient_of(gram, u, rows[c]));
  rows[2] = rows[1];
  gptq_row(gram, u, rows[2]);
  std::vector<float> gradient = gradient_of(gram, u, rows[2]);
  errors[2] = output_error(gram, u, rows[2], gradient);
  rows[3] = rows[2];
  descend_row(gram, job.sweeps, rows[3], gradient);
  errors[3] = output_error(gram, u, rows[3], gradient);
  int best = 0;
  for (int c = 1; c < kGptqCandidates; ++c)
    if (errors[c] < errors[best]) best = c;
  job.chosen[r] = static_cast<std::uint8_t>(best);
  const GptqRow& row = rows[best];
  std::uint8_t* codes = job.codes + r * gram.depth / 2;
  for (std::size_t b = 0; b < blocks; ++b)
    job.scales[r * static_cast<std::int64_t>(blocks) + static_cast<std::int64_t>(b)] =
        row.scales[b];
  for (std::size_t k = 0; k < depth; k += 2) {
    const float reciprocal = 1.0f / E4M3{row.scales[k / kBlock]}.to_float();
    codes[k / 2] =
        static_cast<std::uint8_t>(E2M1::from_float(row.values[k] * reciprocal).bits |
                                  E2M1::from_float(row.values[k + 1] * reciprocal).bits << 4);
  }
}

}  // namespace nvfp4
