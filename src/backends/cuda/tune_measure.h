#pragma once

#include "backends/cuda/gemm/tune.h"
#include "backends/gemm_backend.h"

namespace nvfp4::cuda {

/// What tuning knows of a GPU.
TuneTarget tune_target(Device device);

/// Measures plans of a product with random operands on `device`: see graph_time.h. Its memory is
/// freed with the last copy of what is returned.
MeasurePlan prepare_measuring(const GemmDescription& description, Device device,
                              const GemmBackend& backend);

}  // namespace nvfp4::cuda
