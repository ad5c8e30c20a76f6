#pragma once

#include <string>

namespace nvfp4 {

/// The properties of a build with CUDA. Without CUDA the texts are empty.
struct CudaBuild {
  std::string version;        ///< version of the runtime, such as "13.0"
  std::string driver;         ///< oldest driver, such as "580"
  std::string architectures;  ///< architectures with machine code, such as "80,90a,100f,120f"
};
/// Returns the properties of this library.
CudaBuild cuda_build();

}  // namespace nvfp4
