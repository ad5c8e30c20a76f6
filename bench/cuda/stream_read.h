#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace nvfp4::bench {

/// Reads `bytes` bytes (a multiple of 16) once and discards them, in one wave of 16-byte loads. A
/// kernel that needs these bytes cannot be faster.
void stream_read(const void* from, std::int64_t bytes, unsigned* never_written,
                 cudaStream_t stream);

}  // namespace nvfp4::bench
