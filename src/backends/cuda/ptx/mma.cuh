#pragma once

#include <cstdint>

#include "nvfp4/matrix.h"

/// Matrix instructions of warps (source: PTX ISA, "ldmatrix", "stmatrix", "mma").
namespace nvfp4::cuda::ptx {

/// Loads four 8 x 8 matrices of 16-bit elements. Lane 8i + j holds the address of row j of matrix
/// i.
__device__ __forceinline__ uint4 ldmatrix_x4(std::uint32_t address) {
  uint4 v;
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "r"(address)
               : "memory");
  return v;
}
/// Stores four 8 x 8 matrices of 16-bit elements, transposed. Lane 8i + j holds the address of row
/// j of matrix i.
__device__ __forceinline__ void stmatrix_x4_trans(std::uint32_t to, std::uint32_t m0,
                                                  std::uint32_t m1, std::uint32_t m2,
                                                  std::uint32_t m3) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(to),
               "r"(m0), "r"(m1), "r"(m2), "r"(m3)
               : "memory");
}
__device__ __forceinline__ void stmatrix_x2_trans(std::uint32_t to, std::uint32_t m0,
                                                  std::uint32_t m1) {
  asm volatile("stmatrix.sync.aligned.m8n8.x2.trans.shared.b16 [%0], {%1, %2};" ::"r"(to), "r"(m0),
               "r"(m1)
               : "memory");
}

/// Computes d += a · b for 16 rows and 8 columns (source: PTX ISA, mma.m16n8k16).
template <DType kType>
__device__ __forceinline__ void mma_m16n8k16(float* d, const std::uint32_t (&a)[4],
                                             std::uint32_t b0, std::uint32_t b1) {
  if constexpr (kType == DType::bf16)
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  else
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/// Computes d += a · b of E4M3 for 16 rows and 8 columns (source: PTX ISA, mma.m16n8k32; sm_89).
__device__ __forceinline__ void mma_m16n8k32_e4m3(float* d, const std::uint32_t (&a)[4],
                                                  std::uint32_t b0, std::uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/// Computes d += a · b for 16 rows and 8 columns. The low 13 bits of the FP32 values of `a` and `b`
/// are ignored (source: PTX ISA, mma.m16n8k8 with .tf32).
__device__ __forceinline__ void mma_m16n8k8_tf32(float (&d)[4], float a0, float a1, float a2,
                                                 float a3, const float (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(__float_as_uint(a0)), "r"(__float_as_uint(a1)), "r"(__float_as_uint(a2)),
        "r"(__float_as_uint(a3)), "r"(__float_as_uint(b[0])), "r"(__float_as_uint(b[1])));
}

}  // namespace nvfp4::cuda::ptx
