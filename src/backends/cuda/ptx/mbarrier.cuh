#pragma once

#include <cstdint>

#include "backends/cuda/ptx/memory.cuh"

/// Barriers in shared memory (source: PTX ISA, "mbarrier").
namespace nvfp4::cuda::ptx {

__device__ __forceinline__ void mbarrier_init(std::uint32_t bar, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(bar), "r"(arrivals) : "memory");
}
/// Makes the initialization visible to TMA and to the other blocks of a cluster.
__device__ __forceinline__ void fence_mbarrier_init() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
__device__ __forceinline__ void mbarrier_arrive(std::uint32_t bar) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(bar) : "memory");
}
/// Reports whether a thread arrives for its group, after a barrier that the group shares. The first
/// thread does, so a group has one arrival. compute-sanitizer's racecheck does not see that the
/// other threads' accesses precede that arrival. With NVFP4_EACH_THREAD_ARRIVES each thread arrives
/// for itself.
#ifdef NVFP4_EACH_THREAD_ARRIVES
__device__ __forceinline__ constexpr bool arrives_for_group(int) { return true; }
__device__ __forceinline__ constexpr int arrivals_of_group(int threads) { return threads; }
#else
__device__ __forceinline__ constexpr bool arrives_for_group(int thread) { return thread == 0; }
__device__ __forceinline__ constexpr int arrivals_of_group(int) { return 1; }
#endif
__device__ __forceinline__ void mbarrier_arrive_expect_tx(std::uint32_t bar, std::uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(bar), "r"(bytes)
               : "memory");
}
__device__ __forceinline__ void mbarrier_wait_parity(std::uint32_t bar, std::uint32_t parity) {
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "again:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@!done bra again;\n"
      "}\n" ::"r"(bar),
      "r"(parity)
      : "memory");
}
/// Tells the block of a rank that this block's shared memory was written or read. A fence of shared
/// memory suffices. Fences of all memory, as in barrier.cluster, take several times as long and
/// clear the L1 cache.
__device__ __forceinline__ void mbarrier_arrive_cluster(std::uint32_t bar, int rank) {
  asm volatile(
      "fence.release.sync_restrict::shared::cta.cluster;\n"
      "mbarrier.arrive.relaxed.cluster.shared::cluster.b64 _, [%0];" ::"r"(
          mapa_shared_cluster(bar, rank))
      : "memory");
}
__device__ __forceinline__ void mbarrier_wait_parity_cluster(std::uint32_t bar,
                                                             std::uint32_t parity) {
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "again:\n"
      "mbarrier.try_wait.parity.relaxed.cluster.shared::cta.b64 done, [%0], %1;\n"
      "@!done bra again;\n"
      "fence.acquire.sync_restrict::shared::cluster.cluster;\n"
      "}\n" ::"r"(bar),
      "r"(parity)
      : "memory");
}

}  // namespace nvfp4::cuda::ptx
