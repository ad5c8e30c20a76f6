#pragma once

#include <cstdint>
#include <vector>

#include "nvfp4/matrix.h"

/// The operands of GEMMs with Arithmetic::fp8, as plain loops: GPUs have the same bits.
namespace nvfp4::reference {

/// A matrix as E4M3 codes [rows, cols] and a factor for each row (quantizers/fp8_rows.h).
struct Fp8Rows {
  std::int64_t rows = 0, cols = 0;
  std::vector<std::uint8_t> codes;
  std::vector<float> factors;
};

/// Returns x with the factor of each row's largest magnitude.
Fp8Rows fp8_rows(const MatrixView& x);

/// Returns e2m1 · scale of W with the factor of 6 times each row's largest scale. A NaN or negative
/// scale counts as 0. Scales are linear, with blocks of 16 along the rows.
Fp8Rows fp8_weights(const QuantizedView& w);

}  // namespace nvfp4::reference
