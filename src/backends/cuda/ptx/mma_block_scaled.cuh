#pragma once

#include <cstdint>

/// FP4 mma with block scales (source: PTX ISA, "mma", .kind::mxf4nvf4 with .block_scale). It exists
/// on GPUs of compute capability 12.x, in family-specific code (120f) only.
namespace nvfp4::cuda::ptx {

/// Computes d += a · b for 16 rows and 8 columns. gemm/omma_fragments.h describes the layout. kA
/// and kB are the thread ids of the scales.
template <int kA = 0, int kB = 0>
__device__ __forceinline__ void mma_m16n8k64_nvfp4(float (&d)[4], const std::uint32_t (&a)[4],
                                                   std::uint32_t b0, std::uint32_t b1,
                                                   std::uint32_t a_scales, std::uint32_t b_scales) {
  asm volatile(
      "mma.sync.aligned.m16n8k64.row.col.kind::mxf4nvf4.block_scale.scale_vec::4X.f32.e2m1.e2m1."
      "f32.ue4m3 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3}, {%10}, {0, %12}, "
      "{%11}, {0, %13};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "r"(a_scales), "r"(b_scales),
        "n"(kA), "n"(kB));
}

}  // namespace nvfp4::cuda::ptx
