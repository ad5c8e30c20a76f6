#include "stream_read.h"

namespace nvfp4::bench {
namespace {

constexpr int kThreads = 256, kLoads = 4;

__global__ void __launch_bounds__(kThreads)
    stream_read_kernel(const uint4* from, std::int64_t count, unsigned* never_written) {
  const std::int64_t first = std::int64_t{blockIdx.x} * (kThreads * kLoads) + threadIdx.x;
  unsigned sum = 0;
#pragma unroll
  for (int i = 0; i < kLoads; ++i) {
    const std::int64_t at = first + i * kThreads;
    if (at >= count) break;
    const uint4 v = __ldcs(from + at);
    sum ^= v.x ^ v.y ^ v.z ^ v.w;
  }
  if (sum == 0x9E3779B9u) *never_written = sum;
}

}  // namespace

void stream_read(const void* from, std::int64_t bytes, unsigned* never_written,
                 cudaStream_t stream) {
  const std::int64_t count = bytes / 16, block = kThreads * kLoads;
  stream_read_kernel<<<static_cast<unsigned>((count + block - 1) / block), kThreads, 0, stream>>>(
      static_cast<const uint4*>(from), count, never_written);
}

}  // namespace nvfp4::bench
