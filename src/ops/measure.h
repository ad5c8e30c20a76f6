#pragma once

#include <vector>

#include "backends/backend.h"

namespace nvfp4 {

/// Returns the largest magnitude of a matrix on the CPU.
AmaxResult matrix_amax(const Backend& backend, const MatrixView& x);

/// Writes the largest magnitude of each row or column.
void vector_amax(const Backend& backend, const MatrixView& x, BlockAxis axis, float* out);

}  // namespace nvfp4
