#pragma once

#include <string>

#include "nvfp4/device.h"
#include "ops/factor_gram.h"

namespace nvfp4 {

/// Who factors the Gram matrices of a run on `device`: the device's library if there is one, else
/// Eigen on the CPU. NVFP4_FACTORS = eigen or cusolver in the environment asks for one of them.
struct GramLibrary {
  std::string name;          ///< with its version; empty: Eigen
  InvertLower invert_lower;  ///< empty: Eigen
};

/// Throws ValueError for another NVFP4_FACTORS, UnsupportedError if it is cusolver and that cannot
/// be used, or if nothing can run on the device.
GramLibrary gram_library(Device device);

}  // namespace nvfp4
