#pragma once

#include <cuda.h>

#include <cstdint>

/// Barriers in shared memory and the copy engine (source: PTX ISA, "mbarrier", "cp.async.bulk").
namespace nvfp4::cuda {

__device__ __forceinline__ std::uint32_t shared_address(const void* p) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(p));
}

__device__ __forceinline__ void barrier_init(std::uint32_t bar, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(bar), "r"(arrivals) : "memory");
}
/// For the copy engine and the other blocks of a cluster.
__device__ __forceinline__ void barriers_initialized() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
__device__ __forceinline__ void barrier_arrive(std::uint32_t bar) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(bar) : "memory");
}
__device__ __forceinline__ void barrier_expect(std::uint32_t bar, std::uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(bar), "r"(bytes)
               : "memory");
}
__device__ __forceinline__ void barrier_wait(std::uint32_t bar, std::uint32_t parity) {
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

/// A box of a tensor -> shared memory, completing on `bar`.
__device__ __forceinline__ void load_box(std::uint32_t to, const CUtensorMap* map, int c0, int c1,
                                         int c2, int c3, std::uint32_t bar) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%3, %4, %5, %6}], [%2];" ::"r"(to),
      "l"(map), "r"(bar), "r"(c0), "r"(c1), "r"(c2), "r"(c3)
      : "memory");
}
/// Contiguous bytes, a multiple of 16. (Of cp.async with a policy ptxas 13.0 made an illegal
/// instruction, where the address in shared memory was partly in a uniform register.)
__device__ __forceinline__ void load_bulk(std::uint32_t to, const void* from, std::uint32_t bytes,
                                          std::uint32_t bar, std::uint64_t policy) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint "
      "[%0], [%1], %2, [%3], %4;" ::"r"(to),
      "l"(from), "r"(bytes), "r"(bar), "l"(policy)
      : "memory");
}

/// Shared memory that threads have written -> a box of a tensor, as a copy of the thread that asks.
__device__ __forceinline__ void store_box(const CUtensorMap* map, int c0, int c1,
                                          std::uint32_t from) {
  asm volatile(
      "cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%2, %3}], [%1];\n"
      "cp.async.bulk.commit_group;" ::"l"(map),
      "r"(from), "r"(c0), "r"(c1)
      : "memory");
}
/// After the writes, before the barrier behind which a box is stored.
__device__ __forceinline__ void written_for_copies() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
/// The copies that this thread has asked for have read shared memory, or are complete.
__device__ __forceinline__ void stored_boxes_are_read() {
  asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
}

/// Four 8 x 8 matrices of 16-bit elements, transposed; lane 8i + j holds the address of row j of
/// matrix i.
__device__ __forceinline__ void store_matrices(std::uint32_t to, std::uint32_t m0, std::uint32_t m1,
                                               std::uint32_t m2, std::uint32_t m3) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(to),
               "r"(m0), "r"(m1), "r"(m2), "r"(m3)
               : "memory");
}
__device__ __forceinline__ void store_two_matrices(std::uint32_t to, std::uint32_t m0,
                                                   std::uint32_t m1) {
  asm volatile("stmatrix.sync.aligned.m8n8.x2.trans.shared.b16 [%0], {%1, %2};" ::"r"(to), "r"(m0),
               "r"(m1)
               : "memory");
}

/// Global memory that other threads have written, before copies of this one read it.
__device__ __forceinline__ void written_for_global_copies() {
  asm volatile("fence.proxy.async.global;" ::: "memory");
}
/// What this thread, and those that it has met, wrote is there for who sees the sum.
__device__ __forceinline__ void add_released(std::uint32_t* to, std::uint32_t v) {
  asm volatile("red.release.gpu.global.add.u32 [%0], %1;" ::"l"(to), "r"(v) : "memory");
}
__device__ __forceinline__ std::uint32_t load_relaxed(const std::uint32_t* from) {
  std::uint32_t v;
  asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(v) : "l"(from) : "memory");
  return v;
}
__device__ __forceinline__ std::uint32_t load_acquired(const std::uint32_t* from) {
  std::uint32_t v;
  asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(v) : "l"(from) : "memory");
  return v;
}

/// Threads of a part of the block; barrier 0 is __syncthreads().
__device__ __forceinline__ void part_sync(int barrier, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}
/// The same, when what `needed` was computed from has come: 0. Loads that are only on their way
/// would not be waited for.
__device__ __forceinline__ std::uint32_t part_sync_after(int barrier, int threads,
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
/// For those that wait there in part_sync().
__device__ __forceinline__ void part_arrive(int barrier, int threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}

/// The blocks of a cluster have begun, and initialized their barriers. The wait clears the L1
/// cache.
__device__ __forceinline__ void cluster_arrive() {
  asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
}
__device__ __forceinline__ void cluster_wait() {
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}
/// Where shared memory of a rank is for the others.
__device__ __forceinline__ std::uint32_t address_of_rank(std::uint32_t address, int rank) {
  std::uint32_t remote;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(remote) : "r"(address), "r"(rank));
  return remote;
}
__device__ __forceinline__ float4 load_of_cluster(std::uint32_t remote) {
  float4 v;
  asm volatile("ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
               : "r"(remote)
               : "memory");
  return v;
}
/// Tells the block of a rank that what this one has in its shared memory is there, or was read.
/// Fences of shared memory are enough: those of all memory, as barrier.cluster has them, take
/// several times as long and clear the L1 cache.
__device__ __forceinline__ void barrier_arrive_at(std::uint32_t bar, int rank) {
  asm volatile(
      "fence.release.sync_restrict::shared::cta.cluster;\n"
      "mbarrier.arrive.relaxed.cluster.shared::cluster.b64 _, [%0];" ::"r"(
          address_of_rank(bar, rank))
      : "memory");
}
__device__ __forceinline__ void barrier_wait_of_cluster(std::uint32_t bar, std::uint32_t parity) {
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

/// Copies of a thread, complete for it after a wait for their group.
__device__ __forceinline__ void copy_16(std::uint32_t to, const void* from) {
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;" ::"r"(to), "l"(from)
               : "memory");
}
__device__ __forceinline__ void copy_16_or_zero(std::uint32_t to, const void* from, bool copy) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from),
               "r"(copy ? 16 : 0)
               : "memory");
}
__device__ __forceinline__ void copy_4(std::uint32_t to, const void* from) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(to), "l"(from) : "memory");
}
__device__ __forceinline__ void copies_commit() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
template <int kPending>
__device__ __forceinline__ void copies_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

template <class T>
__device__ __forceinline__ T load_shared(std::uint32_t address);
template <>
__device__ __forceinline__ float4 load_shared(std::uint32_t address) {
  float4 v;
  asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
               : "r"(address)
               : "memory");
  return v;
}
template <>
__device__ __forceinline__ uint4 load_shared(std::uint32_t address) {
  uint4 v;
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "r"(address)
               : "memory");
  return v;
}
template <>
__device__ __forceinline__ uint2 load_shared(std::uint32_t address) {
  uint2 v;
  asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];" : "=r"(v.x), "=r"(v.y) : "r"(address) : "memory");
  return v;
}

/// Four 8 x 8 matrices of 16-bit elements; lane 8i + j holds the address of row j of matrix i.
__device__ __forceinline__ uint4 load_matrices(std::uint32_t address) {
  uint4 v;
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "r"(address)
               : "memory");
  return v;
}

template <int kRegisters>
__device__ __forceinline__ void grow_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
template <int kRegisters>
__device__ __forceinline__ void shrink_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

}  // namespace nvfp4::cuda
