#pragma once

#include "nvfp4/device.h"
#include "ops/factor_gram.h"

namespace nvfp4 {

/// Who factors the Gram matrices of a run on `device`: the library of the device if
/// NVFP4_FACTORS is "cusolver", else Eigen on the CPU, for which this is empty.
/// Throws ValueError for another NVFP4_FACTORS, UnsupportedError if the device has no library.
InvertLower gram_library(Device device);

}  // namespace nvfp4
