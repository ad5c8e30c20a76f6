#pragma once
#include "simt.h"
namespace nvfp4::cuda::ptx {
inline void named_barrier_sync(int barrier, int threads) { emulated::barrier(barrier, threads); }
}  // namespace nvfp4::cuda::ptx
