#pragma once

#include <cstdint>

#include "nvfp4/matrix.h"

/// wgmma.mma_async m64nNk16 with A in registers, B K-major in shared memory with the 128-byte
/// swizzle, FP32 sums (source: PTX ISA, "Asynchronous Warpgroup Level Matrix Instructions").
namespace nvfp4::cuda::ptx {

/// Returns the descriptor of B: rows of 128 bytes (64 columns), 8 rows in a swizzle atom of 1024
/// bytes. The lower half holds the address in units of 16 bytes; offsets can be added to it.
__device__ __forceinline__ std::uint64_t matrix_descriptor_128b(std::uint32_t address) {
  return std::uint64_t{1024 >> 4 | 1u << 30} << 32 | 1u << 16 | (address & 0x3FFFF) >> 4;
}

__device__ __forceinline__ void wgmma_fence() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ __forceinline__ void wgmma_commit_group() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
template <int kInFlight>
__device__ __forceinline__ void wgmma_wait_group() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kInFlight) : "memory");
}

#define NVFP4_D4(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define NVFP4_D16(i) NVFP4_D4(i), NVFP4_D4(i + 4), NVFP4_D4(i + 8), NVFP4_D4(i + 12)
#define NVFP4_D32(i) NVFP4_D16(i), NVFP4_D16(i + 16)
#define NVFP4_D64(i) NVFP4_D32(i), NVFP4_D32(i + 32)
#define NVFP4_T8(p) p "0, " p "1, " p "2, " p "3, " p "4, " p "5, " p "6, " p "7"
#define NVFP4_T10(p) NVFP4_T8(p) ", " p "8, " p "9"
#define NVFP4_LIST8 NVFP4_T8("%")
#define NVFP4_LIST10 NVFP4_T10("%")
#define NVFP4_LIST16 NVFP4_LIST10 ", %10, %11, %12, %13, %14, %15"
#define NVFP4_LIST32 NVFP4_LIST10 ", " NVFP4_T10("%1") ", " NVFP4_T10("%2") ", %30, %31"
#define NVFP4_LIST60                                                                          \
  NVFP4_LIST10 ", " NVFP4_T10("%1") ", " NVFP4_T10("%2") ", " NVFP4_T10("%3") ", " NVFP4_T10( \
      "%4") ", " NVFP4_T10("%5")
#define NVFP4_LIST20 NVFP4_LIST10 ", " NVFP4_T10("%1")
#define NVFP4_LIST24 NVFP4_LIST20 ", %20, %21, %22, %23"
#define NVFP4_LIST40 NVFP4_LIST20 ", " NVFP4_T10("%2") ", " NVFP4_T10("%3")
#define NVFP4_LIST48 \
  NVFP4_LIST10 ", " NVFP4_T10("%1") ", " NVFP4_T10("%2") ", " NVFP4_T10("%3") ", " NVFP4_T8("%4")
#define NVFP4_LIST64 NVFP4_LIST60 ", %60, %61, %62, %63"
#define NVFP4_LIST72 NVFP4_LIST60 ", " NVFP4_T10("%6") ", %70, %71"
#define NVFP4_LIST80 NVFP4_LIST60 ", " NVFP4_T10("%6") ", " NVFP4_T10("%7")
#define NVFP4_LIST96 NVFP4_LIST80 ", " NVFP4_T10("%8") ", %90, %91, %92, %93, %94, %95"
#define NVFP4_LIST128                                                                         \
  NVFP4_LIST60 ", " NVFP4_T10("%6") ", " NVFP4_T10("%7") ", " NVFP4_T10("%8") ", " NVFP4_T10( \
      "%9") ", " NVFP4_T10("%10") ", " NVFP4_T10("%11") ", " NVFP4_T8("%12")

#define NVFP4_WGMMA(N, TYPE, LIST, A0, A1, A2, A3, B, ...)                                        \
  asm volatile(                                                                                   \
      "{\n.reg .pred add;\nsetp.ne.b32 add, 1, 0;\n"                                              \
      "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." TYPE "." TYPE " {" LIST "}, {" A0 ", " A1 \
      ", " A2 ", " A3 "}, " B ", add, 1, 1, 0;\n}\n"                                              \
      : __VA_ARGS__                                                                               \
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b))
#define NVFP4_WGMMA_TYPES(N, LIST, A0, A1, A2, A3, B, ...)        \
  if constexpr (kType == DType::bf16)                             \
    NVFP4_WGMMA(N, "bf16", LIST, A0, A1, A2, A3, B, __VA_ARGS__); \
  else                                                            \
    NVFP4_WGMMA(N, "f16", LIST, A0, A1, A2, A3, B, __VA_ARGS__)

/// Computes the first kN columns of d += a · b asynchronously, 16 rows for each warp.
template <DType kType, int kN, int kSums>
__device__ __forceinline__ void wgmma_m64k16(float (&d)[kSums], const std::uint32_t (&a)[4],
                                             std::uint64_t b) {
  static_assert(kN <= 2 * kSums);
  if constexpr (kN == 16) {
    NVFP4_WGMMA_TYPES(16, NVFP4_LIST8, "%8", "%9", "%10", "%11", "%12", NVFP4_D4(0), NVFP4_D4(4));
  } else if constexpr (kN == 32) {
    NVFP4_WGMMA_TYPES(32, NVFP4_LIST16, "%16", "%17", "%18", "%19", "%20", NVFP4_D16(0));
  } else if constexpr (kN == 40) {
    NVFP4_WGMMA_TYPES(40, NVFP4_LIST20, "%20", "%21", "%22", "%23", "%24", NVFP4_D16(0),
                      NVFP4_D4(16));
  } else if constexpr (kN == 48) {
    NVFP4_WGMMA_TYPES(48, NVFP4_LIST24, "%24", "%25", "%26", "%27", "%28", NVFP4_D16(0),
                      NVFP4_D4(16), NVFP4_D4(20));
  } else if constexpr (kN == 64) {
    NVFP4_WGMMA_TYPES(64, NVFP4_LIST32, "%32", "%33", "%34", "%35", "%36", NVFP4_D32(0));
  } else if constexpr (kN == 80) {
    NVFP4_WGMMA_TYPES(80, NVFP4_LIST40, "%40", "%41", "%42", "%43", "%44", NVFP4_D32(0),
                      NVFP4_D4(32), NVFP4_D4(36));
  } else if constexpr (kN == 96) {
    NVFP4_WGMMA_TYPES(96, NVFP4_LIST48, "%48", "%49", "%50", "%51", "%52", NVFP4_D32(0),
                      NVFP4_D16(32));
  } else if constexpr (kN == 128) {
    NVFP4_WGMMA_TYPES(128, NVFP4_LIST64, "%64", "%65", "%66", "%67", "%68", NVFP4_D64(0));
  } else if constexpr (kN == 144) {
    NVFP4_WGMMA_TYPES(144, NVFP4_LIST72, "%72", "%73", "%74", "%75", "%76", NVFP4_D64(0),
                      NVFP4_D4(64), NVFP4_D4(68));
  } else if constexpr (kN == 160) {
    NVFP4_WGMMA_TYPES(160, NVFP4_LIST80, "%80", "%81", "%82", "%83", "%84", NVFP4_D64(0),
                      NVFP4_D16(64));
  } else if constexpr (kN == 192) {
    NVFP4_WGMMA_TYPES(192, NVFP4_LIST96, "%96", "%97", "%98", "%99", "%100", NVFP4_D64(0),
                      NVFP4_D32(64));
  } else {
    static_assert(kN == 256);
    NVFP4_WGMMA_TYPES(256, NVFP4_LIST128, "%128", "%129", "%130", "%131", "%132", NVFP4_D64(0),
                      NVFP4_D64(64));
  }
}

#undef NVFP4_LIST128
#undef NVFP4_LIST96
#undef NVFP4_LIST80
#undef NVFP4_LIST64
#undef NVFP4_LIST60
#undef NVFP4_LIST48
#undef NVFP4_LIST32
#undef NVFP4_LIST16
#undef NVFP4_LIST72
#undef NVFP4_LIST40
#undef NVFP4_LIST24
#undef NVFP4_LIST20
#undef NVFP4_LIST10
#undef NVFP4_LIST8
#undef NVFP4_T10
#undef NVFP4_T8
#undef NVFP4_D64
#undef NVFP4_D32
#undef NVFP4_D16
#undef NVFP4_D4
#undef NVFP4_WGMMA_TYPES
#undef NVFP4_WGMMA

}  // namespace nvfp4::cuda::ptx
