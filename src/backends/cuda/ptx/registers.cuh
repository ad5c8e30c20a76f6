#pragma once

#include <cstdint>

/// Special registers and three-operand logic (source: PTX ISA, "%laneid", "lop3").
namespace nvfp4::cuda::ptx {

/// Returns the lane. The volatile read keeps ptxas from computing dependent values repeatedly.
__device__ __forceinline__ int laneid() {
  int lane;
  asm volatile("mov.u32 %0, %%laneid;" : "=r"(lane));
  return lane;
}
/// Computes f(a, b, c) bit by bit. kTable is f(0xF0, 0xCC, 0xAA).
template <int kTable>
__device__ __forceinline__ std::uint32_t lop3(std::uint32_t a, std::uint32_t b, std::uint32_t c) {
  std::uint32_t d;
  asm("lop3.b32 %0, %1, %2, %3, %4;" : "=r"(d) : "r"(a), "r"(b), "r"(c), "n"(kTable));
  return d;
}

}  // namespace nvfp4::cuda::ptx
