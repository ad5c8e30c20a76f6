#pragma once

#include <cstdint>

/// Named barriers and cluster barriers (source: PTX ISA, "bar", "barrier.cluster").
namespace nvfp4::cuda::ptx {

/// Synchronizes some threads of the block. Barrier 0 is __syncthreads().
__device__ __forceinline__ void named_barrier_sync(int barrier, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}
/// Synchronizes after the loads from which `needed` was computed. Returns 0. Without that
/// dependency the barrier would not wait for loads in flight.
__device__ __forceinline__ std::uint32_t named_barrier_sync_after(int barrier, int threads,
                                                                  std::uint32_t needed) {
  std::uint32_t count;  // at most `threads`, but unknown to the compiler
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
/// Arrives for threads that wait in named_barrier_sync().
__device__ __forceinline__ void named_barrier_arrive(int barrier, int threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}
/// Signals that this block has initialized its barriers. The wait for all blocks of the cluster
/// clears the L1 cache.
__device__ __forceinline__ void barrier_cluster_arrive() {
  asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
}
__device__ __forceinline__ void barrier_cluster_wait() {
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

}  // namespace nvfp4::cuda::ptx
