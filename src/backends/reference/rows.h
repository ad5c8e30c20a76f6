#pragma once

#include "backends/backend.h"

namespace nvfp4::reference {

/// The row operations of Backend, as plain loops over quantizers/row_math.h.
void make_rows(const RowJob& job, std::int64_t r0, std::int64_t r1, float* rows, float* amax);
void store_rows(const float* rows, std::int64_t r0, std::int64_t r1, const MatrixSpan& y);
void gram(const MatrixView& x, const MatrixSpan& out, bool accumulate, std::int64_t b0,
          std::int64_t b1);

}  // namespace nvfp4::reference
