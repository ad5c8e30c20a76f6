#pragma once

#include <cstdint>

/// Memory instructions of PTX (source: PTX ISA, "ld", "red", "fence.proxy", "mapa").
namespace nvfp4::cuda::ptx {

__device__ __forceinline__ std::uint32_t cvta_shared(const void* p) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(p));
}
template <class T>
__device__ __forceinline__ T ld_shared(std::uint32_t address);
template <>
__device__ __forceinline__ float4 ld_shared(std::uint32_t address) {
  float4 v;
  asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
               : "r"(address)
               : "memory");
  return v;
}
template <>
__device__ __forceinline__ uint4 ld_shared(std::uint32_t address) {
  uint4 v;
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "r"(address)
               : "memory");
  return v;
}
template <>
__device__ __forceinline__ uint2 ld_shared(std::uint32_t address) {
  uint2 v;
  asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];" : "=r"(v.x), "=r"(v.y) : "r"(address) : "memory");
  return v;
}
/// Loads through the read-only cache. No kernel may write this memory during the launch.
template <class T>
__device__ __forceinline__ T ld_global_nc(const void* from);
template <>
__device__ __forceinline__ uint4 ld_global_nc(const void* from) {
  uint4 v;
  asm volatile("ld.global.nc.L2::128B.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(from));
  return v;
}
template <>
__device__ __forceinline__ uint2 ld_global_nc(const void* from) {
  uint2 v;
  asm volatile("ld.global.nc.v2.u32 {%0, %1}, [%2];" : "=r"(v.x), "=r"(v.y) : "l"(from));
  return v;
}
/// Returns the address of a rank's shared memory in the cluster's address space.
__device__ __forceinline__ std::uint32_t mapa_shared_cluster(std::uint32_t address, int rank) {
  std::uint32_t remote;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(remote) : "r"(address), "r"(rank));
  return remote;
}
__device__ __forceinline__ float4 ld_shared_cluster(std::uint32_t remote) {
  float4 v;
  asm volatile("ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
               : "r"(remote)
               : "memory");
  return v;
}
__device__ __forceinline__ std::uint32_t ld_relaxed_gpu(const std::uint32_t* from) {
  std::uint32_t v;
  asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(v) : "l"(from) : "memory");
  return v;
}
__device__ __forceinline__ std::uint32_t ld_acquire_gpu(const std::uint32_t* from) {
  std::uint32_t v;
  asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(v) : "l"(from) : "memory");
  return v;
}
/// Adds with release semantics: a thread that reads the sum sees earlier writes of this thread and
/// of those it has synchronized with.
__device__ __forceinline__ void red_release_gpu_add(std::uint32_t* to, std::uint32_t v) {
  asm volatile("red.release.gpu.global.add.u32 [%0], %1;" ::"l"(to), "r"(v) : "memory");
}
/// Makes writes to shared memory visible to TMA. Call it after the writes, before the barrier that
/// precedes the store of a box.
__device__ __forceinline__ void fence_proxy_async_shared() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
/// Makes other threads' writes to global memory visible to this thread's bulk copies.
__device__ __forceinline__ void fence_proxy_async_global() {
  asm volatile("fence.proxy.async.global;" ::: "memory");
}

}  // namespace nvfp4::cuda::ptx
