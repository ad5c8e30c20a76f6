#pragma once

#include "backends/backend.h"
#include "backends/row_job.h"

/// The fused operations on the CPU: rows are made a few at a time and leave no trace in memory.
namespace nvfp4 {

void quantize_rows(const Backend& backend, const RowQuantizeJob& job);
void store_rows(const Backend& backend, const RowJob& job, const MatrixSpan& y);

/// Ids as int64 and weights, of validated arguments.
void stage_routing(const Routing& routing, const StagedRouting& staged);

}  // namespace nvfp4
