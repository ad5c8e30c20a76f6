#include "backends/reference/fp8.h"

#include <algorithm>
#include <cmath>

#include "quantizers/fp8_rows.h"

namespace nvfp4::reference {
namespace {

/// Returns rows of the codes of value(row, column). amax(row) decides their factors.
template <class Amax, class Value>
Fp8Rows rows_of(std::int64_t rows, std::int64_t cols, Amax&& amax, Value&& value) {
  Fp8Rows q{.rows = rows, .cols = cols, .codes = {}, .factors = {}};
  for (std::int64_t r = 0; r < rows; ++r) {
    q.factors.push_back(fp8_row_factor(amax(r)));
    const float inverse = fp8_row_inverse(q.factors.back());
    for (std::int64_t c = 0; c < cols; ++c) q.codes.push_back(fp8_code(value(r, c), inverse).bits);
  }
  return q;
}

}  // namespace

Fp8Rows fp8_rows(const MatrixView& x) {
  const auto amax = [&](std::int64_t r) {
    float largest = 0;
    for (std::int64_t c = 0; c < x.cols; ++c) {
      const float magnitude = std::fabs(x.at(r, c));
      if (!(magnitude <= largest)) largest = magnitude;  // also a NaN
      if (std::isnan(largest)) break;
    }
    return largest;
  };
  return rows_of(x.rows, x.cols, amax, [&](std::int64_t r, std::int64_t c) { return x.at(r, c); });
}

Fp8Rows fp8_weights(const QuantizedView& w) {
  const std::int64_t blocks = w.shape.blocks();
  const auto scale = [&](std::int64_t r, std::int64_t b) {
    const std::uint8_t bits = w.scales[r * blocks + b];
    return bits <= E4M3::kMaxBits ? E4M3{bits}.to_float() : 0.0f;
  };
  const auto amax = [&](std::int64_t r) {
    float largest = 0;
    for (std::int64_t b = 0; b < blocks; ++b) largest = std::max(largest, scale(r, b));
    return E2M1::kMax * largest;
  };
  return rows_of(w.shape.rows, w.shape.cols, amax, [&](std::int64_t r, std::int64_t c) {
    const int code = w.codes[(r * w.shape.cols + c) / 2] >> (c % 2 * 4) & 0xF;
    return E2M1{static_cast<std::uint8_t>(code)}.to_float() * scale(r, c / kBlock);
  });
}

}  // namespace nvfp4::reference
