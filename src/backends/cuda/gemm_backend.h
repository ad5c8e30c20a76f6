#pragma once

#include "backends/gemm_backend.h"

namespace nvfp4::cuda {

/// Returns the GEMM and mixture-of-experts operations of a GPU. Throws UnsupportedError with the
/// reason if nothing can run on `device`.
const GemmBackend& gpu_gemm_backend(Device device);

}  // namespace nvfp4::cuda
