#pragma once

#include "backends/device_backend.h"

namespace nvfp4::cuda {

/// Returns the solver that uses cuSOLVER.
const DeviceSolver* solver();

}  // namespace nvfp4::cuda
