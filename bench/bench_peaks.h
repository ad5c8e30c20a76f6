#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

/// What the arithmetic units can do: loops that stay in registers.
namespace nvfp4::bench {

struct Peak {
  std::string name;
  double operations;  ///< of a run
  std::function<void()> run;
};

#if defined(__x86_64__)
inline constexpr int kPeakSteps = 100'000, kPeakSums = 12;

// Twelve sums, enough for two units of latency five. The empty asm keeps them in registers and the
// loop as it is.
#define NVFP4_PEAK(function, features, Vector, zero, step)                                         \
  __attribute__((target(features))) inline void function() {                                       \
    Vector s[kPeakSums], a = zero, b = zero;                                                       \
    for (Vector & v : s) v = zero;                                                                 \
    asm volatile("" : "+v"(a), "+v"(b));                                                           \
    for (int i = 0; i < kPeakSteps; ++i) {                                                         \
      _Pragma("GCC unroll 12") for (Vector & v : s) v = step;                                      \
      asm volatile("" : "+v"(s[0]), "+v"(s[1]), "+v"(s[2]), "+v"(s[3]), "+v"(s[4]), "+v"(s[5]));   \
      asm volatile("" : "+v"(s[6]), "+v"(s[7]), "+v"(s[8]), "+v"(s[9]), "+v"(s[10]), "+v"(s[11])); \
    }                                                                                              \
  }
NVFP4_PEAK(vnni_loop, "avx512f,avx512vnni", __m512i, _mm512_setzero_si512(),
           _mm512_dpbusd_epi32(v, a, b))
NVFP4_PEAK(fma512_loop, "avx512f", __m512, _mm512_setzero_ps(), _mm512_fmadd_ps(a, b, v))
NVFP4_PEAK(fma256_loop, "avx2,fma", __m256, _mm256_setzero_ps(), _mm256_fmadd_ps(a, b, v))
NVFP4_PEAK(maddubs_loop, "avx2", __m256i, _mm256_setzero_si256(), _mm256_maddubs_epi16(a, v))
#undef NVFP4_PEAK

__attribute__((target("avx512f,avx512bf16"))) inline void bf16_loop() {
  __m512 s[kPeakSums];
  __m512i a = _mm512_setzero_si512(), b = a;
  for (__m512& v : s) v = _mm512_setzero_ps();
  asm volatile("" : "+v"(a), "+v"(b));
  for (int i = 0; i < kPeakSteps; ++i) {
    _Pragma("GCC unroll 12") for (__m512& v : s) v =
        _mm512_dpbf16_ps(v, reinterpret_cast<__m512bh&>(a), reinterpret_cast<__m512bh&>(b));
    asm volatile("" : "+v"(s[0]), "+v"(s[1]), "+v"(s[2]), "+v"(s[3]), "+v"(s[4]), "+v"(s[5]));
    asm volatile("" : "+v"(s[6]), "+v"(s[7]), "+v"(s[8]), "+v"(s[9]), "+v"(s[10]), "+v"(s[11]));
  }
}

/// A multiplication and an addition count as two.
inline std::vector<Peak> peaks() {
  constexpr double kSteps = double{kPeakSteps} * kPeakSums;
  std::vector<Peak> list;
  if (__builtin_cpu_supports("avx512vnni"))
    list.push_back({"vpdpbusd_zmm", kSteps * 128, vnni_loop});
  if (__builtin_cpu_supports("avx512bf16"))
    list.push_back({"vdpbf16ps_zmm", kSteps * 64, bf16_loop});
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
