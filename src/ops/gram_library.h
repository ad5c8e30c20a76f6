#pragma once

#include <string>

#include "nvfp4/device.h"
#include "ops/factor_gram.h"

namespace nvfp4 {

/// The library that factors the Gram matrices of a run. By default it is that of the device, else
/// Eigen on the CPU. NVFP4_FACTORS = eigen or cusolver in the environment selects one.
struct GramLibrary {
  std::string name;          ///< name and version; "": Eigen
  InvertLower invert_lower;  ///< empty: Eigen
};

/// Returns the library for `device`. Throws ValueError for an unknown NVFP4_FACTORS. Throws
/// UnsupportedError if it is cusolver and unusable, or if the device is unusable.
GramLibrary gram_library(Device device);

}  // namespace nvfp4
