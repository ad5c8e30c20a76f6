#pragma once

#include <cstdint>

/// The instruction that multiplies NVFP4 by NVFP4 on tensor cores of compute capability 12.x.
namespace nvfp4::selftest {

/// The operands of mma.m16n8k64 of kind mxf4nvf4 with scale_vec::4X, as registers of 32 lanes.
struct Fp4Case {
  std::uint32_t a[32][4];
  std::uint32_t b[32][2];
  std::uint32_t a_scales[32], b_scales[32];
  float d[32][4];  ///< sums, before and after
};

}  // namespace nvfp4::selftest
