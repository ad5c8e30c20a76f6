#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "nvfp4/runtime.h"

/// Peak rates of the arithmetic units: loops that stay in registers.
namespace nvfp4::bench {

struct Peak {
  std::string name;
  double operations;  ///< operations of a run
  std::function<void()> run;
};

#if defined(__x86_64__)
inline constexpr int kPeakSteps = 100'000, kPeakSums = 12;

// Twelve sums in registers are enough for two units with a latency of five.
#define NVFP4_REPEAT(op)                                                                     \
  op "0\n\t" op "1\n\t" op "2\n\t" op "3\n\t" op "4\n\t" op "5\n\t" op "6\n\t" op "7\n\t" op \
     "8\n\t" op "9\n\t" op "10\n\t" op "11\n\t"
#define NVFP4_PEAK(function, op)                                                                   \
  inline void function() {                                                                         \
    int steps = kPeakSteps;                                                                        \
    asm volatile("vzeroall\n1:\n\t" NVFP4_REPEAT(op) "dec %0\n\tjnz 1b"                            \
                 : "+r"(steps)                                                                     \
                 :                                                                                 \
                 : "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", \
                   "xmm10", "xmm11", "cc");                                                        \
  }
NVFP4_PEAK(vnni_loop, "vpdpbusd %%zmm14, %%zmm15, %%zmm")
NVFP4_PEAK(bf16_loop, "vdpbf16ps %%zmm14, %%zmm15, %%zmm")
NVFP4_PEAK(fma512_loop, "vfmadd231ps %%zmm14, %%zmm15, %%zmm")
NVFP4_PEAK(fma256_loop, "vfmadd231ps %%ymm14, %%ymm15, %%ymm")
NVFP4_PEAK(maddubs_loop, "vpmaddubsw %%ymm14, %%ymm15, %%ymm")
#undef NVFP4_PEAK
#undef NVFP4_REPEAT

/// Computes four sums of 16 x 16 with 32 products each. The palette of ldtilecfg has 8 tiles of 16
/// rows of 64 bytes.
inline void amx_loop() {
  struct alignas(64) {
    std::uint8_t palette = 1, zeros[15] = {};
    std::uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
    std::uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
  } const config;
  int steps = kPeakSteps;
  asm volatile(
      "ldtilecfg %1\n1:\n\t"
      "tdpbf16ps %%tmm4, %%tmm5, %%tmm0\n\ttdpbf16ps %%tmm4, %%tmm5, %%tmm1\n\t"
      "tdpbf16ps %%tmm4, %%tmm5, %%tmm2\n\ttdpbf16ps %%tmm4, %%tmm5, %%tmm3\n\t"
      "dec %0\n\tjnz 1b\n\ttilerelease"
      : "+r"(steps)
      : "m"(config)
      : "cc");
}

/// Returns the loops for this CPU. A multiplication and an addition count as two operations.
inline std::vector<Peak> peaks() {
  constexpr double kSteps = double{kPeakSteps} * kPeakSums;
  std::vector<Peak> list;
  if (__builtin_cpu_supports("avx512vnni"))
    list.push_back({"vpdpbusd_zmm", kSteps * 128, vnni_loop});
  if (__builtin_cpu_supports("avx512bf16"))
    list.push_back({"vdpbf16ps_zmm", kSteps * 64, bf16_loop});
  for (const BackendInfo& b : backends())
    if (b.name == "cpu-amx" && b.available)
      list.push_back({"tdpbf16ps", double{kPeakSteps} * 4 * 16 * 16 * 32 * 2, amx_loop});
  if (__builtin_cpu_supports("avx512f")) list.push_back({"fma_zmm", kSteps * 32, fma512_loop});
  if (__builtin_cpu_supports("avx2")) {
    list.push_back({"fma_ymm", kSteps * 16, fma256_loop});
    list.push_back({"vpmaddubsw_ymm", kSteps * 64, maddubs_loop});
  }
  return list;
}
#else
inline std::vector<Peak> peaks() { return {}; }
#endif

}  // namespace nvfp4::bench
