#pragma once

#include <vector>

#include "backends/backend.h"

namespace nvfp4 {

/// Over the whole matrix, on the CPU.
AmaxResult matrix_amax(const Backend& backend, const MatrixView& x);

/// The largest magnitude of each row or column, into `out`.
void vector_amax(const Backend& backend, const MatrixView& x, BlockAxis axis, float* out);

}  // namespace nvfp4
