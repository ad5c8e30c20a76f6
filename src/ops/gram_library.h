#pragma once

#include "nvfp4/device.h"
#include "ops/factor_gram.h"

namespace nvfp4 {

/// Whether NVFP4_FACTORS asks for the library of `device`: it gives other bytes than Eigen. Throws
/// ValueError for another NVFP4_FACTORS.
bool wants_gram_library(Device device);

/// Who factors the Gram matrices of a run on `device`: its library if it is wanted, else Eigen on
/// the CPU, for which this is empty. Throws ValueError as wants_gram_library() does,
/// UnsupportedError if the device has no library.
InvertLower gram_library(Device device);

}  // namespace nvfp4
