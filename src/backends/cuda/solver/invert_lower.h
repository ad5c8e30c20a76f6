#pragma once

#include "backends/device_backend.h"

namespace nvfp4::cuda {

/// By cuSOLVER.
const DeviceSolver* solver();

}  // namespace nvfp4::cuda
