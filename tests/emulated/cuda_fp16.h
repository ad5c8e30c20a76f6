#pragma once

#include "nvfp4/format.h"
#include "simt.h"

/// Two FP16 of a register, as far as the kernels of gemm/sm80 need them.
struct __half2 {
  std::uint16_t x, y;
};
inline __half2 __floats2half2_rn(float low, float high) {
  return {nvfp4::FP16::from_float(low).bits, nvfp4::FP16::from_float(high).bits};
}
inline __half2 __high2half2(__half2 v) { return {v.y, v.y}; }
inline __half2 __low2half2(__half2 v) { return {v.x, v.x}; }
inline __half2 __hmul2(__half2 a, __half2 b) {
  const auto of = [](std::uint16_t v) { return nvfp4::FP16{v}.to_float(); };
  return __floats2half2_rn(of(a.x) * of(b.x), of(a.y) * of(b.y));
}
