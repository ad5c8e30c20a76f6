#pragma once

#include "backends/backend.h"
#include "backends/row_job.h"

/// The fused operations on the CPU. A few rows at a time are computed and quantized, so the FP32
/// rows are never stored as a whole.
namespace nvfp4 {

void quantize_rows(const Backend& backend, const RowQuantizeJob& job);
void store_rows(const Backend& backend, const RowJob& job, const MatrixSpan& y);

/// Copies ids as int64 and weights. The arguments are validated.
void stage_routing(const Routing& routing, const StagedRouting& staged);

}  // namespace nvfp4
