#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "nvfp4/activation.h"

/// Tokens to experts and back.
namespace nvfp4 {

/// Which rows the experts get: the pairs (t, k) of `tokens` tokens and top_k choices, ordered by
/// expert, and for the same expert by t, then k.
struct Dispatch {
  std::vector<std::int64_t> token_of;  ///< of each row
  std::vector<std::int64_t> row_of;    ///< of each pair, t · top_k + k
  std::vector<std::int64_t> row_ends;  ///< of each expert
};
/// ids [tokens · top_k], all in 0 … experts - 1.
Dispatch dispatch(std::span<const std::int64_t> ids, std::int64_t top_k, std::int64_t experts);

/// Rows token_of[0], token_of[1], ... of x, one after the other.
void gather_rows(const MatrixView& x, std::span<const std::int64_t> token_of,
                 const MatrixSpan& out);
/// Linear scales.
void gather_rows(const QuantizedView& x, std::span<const std::int64_t> token_of,
                 const QuantizedSpan& out);

/// y += other, FP32.
void add_rows(const MatrixView& other, const MatrixSpan& y);
/// out[t] = y[t] + Σ_k weights[t · top_k + k] · rows[row_of[t · top_k + k]], FP32 in the order of
/// k, products rounded; then rounded to the type of out. y [M, K] may have no data: zeros.
void combine_rows(const MatrixView& y, const MatrixView& rows, std::span<const float> weights,
                  std::span<const std::int64_t> row_of, const MatrixSpan& out);

}  // namespace nvfp4
