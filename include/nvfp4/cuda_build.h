#pragma once

#include <string>

namespace nvfp4 {

/// What a build with CUDA has; empty texts without.
struct CudaBuild {
  std::string version;        ///< of the runtime: "13.0"
  std::string driver;         ///< the oldest that it takes: "580"
  std::string architectures;  ///< with machine code for them: "80,90a,100f,120f"
};
CudaBuild cuda_build();  ///< of this library

}  // namespace nvfp4
