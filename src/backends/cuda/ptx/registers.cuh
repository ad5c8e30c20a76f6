#pragma once

#include <cstdint>

/// Special registers, and logic of three operands (source: PTX ISA, "%laneid", "lop3").
namespace nvfp4::cuda::ptx {

/// Volatile: else ptxas would compute all that depends on it again and again.
__device__ __forceinline__ int laneid() {
  int lane;
  asm volatile("mov.u32 %0, %%laneid;" : "=r"(lane));
  return lane;
}
/// Bit by bit, kTable gives f(a, b, c): 0xF0, 0xCC and 0xAA stand for the operands.
template <int kTable>
__device__ __forceinline__ std::uint32_t lop3(std::uint32_t a, std::uint32_t b, std::uint32_t c) {
  std::uint32_t d;
  asm("lop3.b32 %0, %1, %2, %3, %4;" : "=r"(d) : "r"(a), "r"(b), "r"(c), "n"(kTable));
  return d;
}

}  // namespace nvfp4::cuda::ptx
