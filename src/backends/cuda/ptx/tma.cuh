#pragma once

#include <cuda.h>

#include <cstdint>

/// The tensor memory accelerator (source: PTX ISA, "cp.async.bulk").
namespace nvfp4::cuda::ptx {

__device__ __forceinline__ void prefetch_tensormap(const CUtensorMap* map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}
/// Copies a box of a tensor to shared memory. Completion is signaled on `bar`.
__device__ __forceinline__ void cp_async_bulk_tensor_4d(std::uint32_t to, const CUtensorMap* map,
                                                        int c0, int c1, int c2, int c3,
                                                        std::uint32_t bar) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%3, %4, %5, %6}], [%2];" ::"r"(to),
      "l"(map), "r"(bar), "r"(c0), "r"(c1), "r"(c2), "r"(c3)
      : "memory");
}
/// Copies contiguous bytes, a multiple of 16. cp.async with a policy is not used: ptxas 13.0
/// generated an illegal instruction if the shared address was partly in a uniform register.
__device__ __forceinline__ void cp_async_bulk(std::uint32_t to, const void* from,
                                              std::uint32_t bytes, std::uint32_t bar,
                                              std::uint64_t policy) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint "
      "[%0], [%1], %2, [%3], %4;" ::"r"(to),
      "l"(from), "r"(bytes), "r"(bar), "l"(policy)
      : "memory");
}
/// Copies shared memory to a box of a tensor, in a bulk group of the calling thread.
__device__ __forceinline__ void cp_async_bulk_tensor_2d_store(const CUtensorMap* map, int c0,
                                                              int c1, std::uint32_t from) {
  asm volatile(
      "cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%2, %3}], [%1];\n"
      "cp.async.bulk.commit_group;" ::"l"(map),
      "r"(from), "r"(c0), "r"(c1)
      : "memory");
}
/// Waits until the bulk groups of this thread have read shared memory.
__device__ __forceinline__ void cp_async_bulk_wait_group_read() {
  asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
}

}  // namespace nvfp4::cuda::ptx
