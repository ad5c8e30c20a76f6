#pragma once
#include "simt.h"
namespace nvfp4::cuda::ptx {
inline void named_barrier_sync(int barrier, int threads) { emulated::barrier(barrier, threads); }
template <int kCount, int kThreads>
void numbered_barrier_sync(int barrier) {
  emulated::barrier(barrier, kThreads);
}
}  // namespace nvfp4::cuda::ptx
