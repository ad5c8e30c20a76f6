#pragma once

#include "nvfp4/format.h"
#include "simt.h"

/// Two BF16 of a register, as far as the kernels of gemm/sm80 need them.
struct __nv_bfloat162 {
  std::uint16_t x, y;
};
inline __nv_bfloat162 __floats2bfloat162_rn(float low, float high) {
  return {nvfp4::BF16::from_float(low).bits, nvfp4::BF16::from_float(high).bits};
}
inline __nv_bfloat162 __high2bfloat162(__nv_bfloat162 v) { return {v.y, v.y}; }
inline __nv_bfloat162 __low2bfloat162(__nv_bfloat162 v) { return {v.x, v.x}; }
inline __nv_bfloat162 __hmul2(__nv_bfloat162 a, __nv_bfloat162 b) {
  const auto of = [](std::uint16_t v) { return nvfp4::BF16{v}.to_float(); };
  return __floats2bfloat162_rn(of(a.x) * of(b.x), of(a.y) * of(b.y));
}
