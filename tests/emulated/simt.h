#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>

/// A block of threads on the CPU: each is a context of its own, and they take turns where they wait
/// for one another. What the kernels of gemm/sm80 and sm120 need of CUDA, so that its indices are
/// tested without a GPU; instructions are in backends/cuda/ptx beside this, in place of those of
/// PTX.
#define __device__
#define __global__
#define __host__
#define __shared__
#define __forceinline__ inline
#define __noinline__
#define __grid_constant__
#define __launch_bounds__(...)
#define __align__(n)
#define threadIdx (nvfp4::emulated::thread_index())
#define blockIdx (nvfp4::emulated::block_index())
#define gridDim (nvfp4::emulated::grid_size())

struct uint2 {
  std::uint32_t x, y;
};
struct uint4 {
  std::uint32_t x, y, z, w;
};
struct float4 {
  float x, y, z, w;
};

namespace nvfp4::emulated {

struct Index {
  unsigned x;
};
Index thread_index();
Index block_index();
Index grid_size();

inline constexpr int kSharedBytes = 100 * 1024;
std::uint8_t* shared_memory();

/// `threads` of the block wait for each other at this barrier.
void barrier(int id, int threads);
/// Waits for all lanes of a warp. Each lane may leave a word for the others.
void warp_barrier();
struct WarpWords {
  std::uint32_t of[32][8];
};
WarpWords& warp_words();

/// Copies that are seen no sooner than they are waited for; until then what they overwrite is lost.
void copy_async(std::uint32_t to, const void* from, int bytes, bool zeros);
void commit_copies();
void await_copies(int pending);

/// Runs all blocks, in order or backwards.
void launch(int blocks, int threads, bool backwards, void (*kernel)(const void*), const void* p);

}  // namespace nvfp4::emulated

inline int __clz(int v) { return std::countl_zero(static_cast<unsigned>(v)); }
inline std::uint32_t __float_as_uint(float v) { return std::bit_cast<std::uint32_t>(v); }
inline float __uint_as_float(std::uint32_t v) { return std::bit_cast<float>(v); }
inline std::uint32_t __funnelshift_l(std::uint32_t low, std::uint32_t high, int by) {
  const std::uint64_t both = static_cast<std::uint64_t>(high) << 32 | low;
  return static_cast<std::uint32_t>(both << (by & 31) >> 32);
}
inline std::uint32_t __shfl_xor_sync(unsigned, std::uint32_t v, int mask) {
  auto& words = nvfp4::emulated::warp_words().of;
  const unsigned lane = threadIdx.x % 32;
  words[lane][0] = v;
  nvfp4::emulated::warp_barrier();
  const std::uint32_t got = words[lane ^ static_cast<unsigned>(mask)][0];
  nvfp4::emulated::warp_barrier();
  return got;
}
inline float __fmaf_rn(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
inline std::uint32_t __byte_perm(std::uint32_t a, std::uint32_t b, std::uint32_t selector) {
  const std::uint64_t bytes = static_cast<std::uint64_t>(b) << 32 | a;
  std::uint32_t v = 0;
  for (int i = 0; i < 4; ++i)
    v |= static_cast<std::uint32_t>(bytes >> (selector >> i * 4 & 7) * 8 & 0xFF) << i * 8;
  return v;
}
template <class T>
T __ldg(const T* from) {
  return *from;
}
template <class T>
T __ldcg(const T* from) {
  return *from;
}
template <class T>
void __stcg(T* to, T v) {
  *to = v;
}
inline void __threadfence() {}
inline std::uint32_t atomicAdd(std::uint32_t* to, std::uint32_t v) {
  const std::uint32_t old = *to;
  *to += v;
  return old;
}
inline void __syncwarp() { nvfp4::emulated::warp_barrier(); }
void __syncthreads();

template <class T>
T emulated_shuffle(T v, int lane) {
  static_assert(sizeof(T) == 4);
  auto& words = nvfp4::emulated::warp_words().of;
  std::memcpy(words[threadIdx.x % 32], &v, 4);
  nvfp4::emulated::warp_barrier();
  std::memcpy(&v, words[lane], 4);
  nvfp4::emulated::warp_barrier();
  return v;
}
template <class T>
T __shfl_sync(unsigned, T v, int lane) {
  return emulated_shuffle(v, lane);
}
template <class T>
T __shfl_up_sync(unsigned, T v, int by) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  return emulated_shuffle(v, lane < by ? lane : lane - by);
}

using std::max;
using std::min;
