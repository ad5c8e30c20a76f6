#pragma once

namespace nvfp4::cuda {

/// d += a · b, 16 rows and 8 columns, at once. Of the FP32 values of `a` and `b` the low 13 bits
/// are ignored (source: PTX ISA, mma.m16n8k8 with .tf32).
__device__ __forceinline__ void mma_tf32(float (&d)[4], float a0, float a1, float a2, float a3,
                                         const float (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(__float_as_uint(a0)), "r"(__float_as_uint(a1)), "r"(__float_as_uint(a2)),
        "r"(__float_as_uint(a3)), "r"(__float_as_uint(b[0])), "r"(__float_as_uint(b[1])));
}

}  // namespace nvfp4::cuda
