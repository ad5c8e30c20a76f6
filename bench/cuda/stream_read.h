#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace nvfp4::bench {

/// Reads `bytes` (a multiple of 16) once, in one wave of 16-byte loads, and drops them: what a
/// kernel that needs these bytes cannot be faster than.
void stream_read(const void* from, std::int64_t bytes, unsigned* never_written,
                 cudaStream_t stream);

}  // namespace nvfp4::bench
