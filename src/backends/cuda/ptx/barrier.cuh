#pragma once

#include <cstdint>

/// Named barriers and those of a cluster (source: PTX ISA, "bar", "barrier.cluster").
namespace nvfp4::cuda::ptx {

/// Threads of a part of the block; barrier 0 is __syncthreads().
__device__ __forceinline__ void named_barrier_sync(int barrier, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}
/// The same, when what `needed` was computed from has come: 0. Loads that are only on their way
/// would not be waited for.
__device__ __forceinline__ std::uint32_t named_barrier_sync_after(int barrier, int threads,
                                                                  std::uint32_t needed) {
  std::uint32_t count;  // at most `threads`, but nobody knows
  asm volatile(
      "{\n"
      ".reg .pred any;\n"
      "setp.ne.u32 any, %3, 0;\n"
      "barrier.cta.red.popc.u32 %0, %1, %2, any;\n"
      "}\n"
      : "=r"(count)
      : "r"(barrier), "r"(threads), "r"(needed)
      : "memory");
  return count >> 16;
}
/// For those that wait there in named_barrier_sync().
__device__ __forceinline__ void named_barrier_arrive(int barrier, int threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}
/// The blocks of a cluster have begun, and initialized their barriers. The wait clears the L1
/// cache.
__device__ __forceinline__ void barrier_cluster_arrive() {
  asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
}
__device__ __forceinline__ void barrier_cluster_wait() {
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

}  // namespace nvfp4::cuda::ptx
