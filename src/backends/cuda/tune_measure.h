#pragma once

#include "backends/cuda/gemm/tune.h"
#include "backends/gemm_backend.h"

namespace nvfp4::cuda {

/// Returns the GPU and the versions for which measurements are valid.
TuneTarget tune_target(Device device);

/// Returns a function that measures plans of a GEMM with random operands on `device`, see
/// graph_time.h. Its last copy frees the memory.
MeasurePlan prepare_measuring(const GemmDescription& description, Device device,
                              const GemmBackend& backend);

}  // namespace nvfp4::cuda
