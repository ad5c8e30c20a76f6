#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "nvfp4/device.h"

/// Runs the instruction that multiplies NVFP4 by NVFP4 on tensor cores of compute capability 12.x
/// alone, for the selftest.
namespace nvfp4 {

/// The operands of mma.m16n8k64 of kind mxf4nvf4 with scale_vec::4X, as registers of 32 lanes.
struct Fp4Case {
  std::uint32_t a[32][4];
  std::uint32_t b[32][2];
  std::uint32_t a_scales[32], b_scales[32];
  float d[32][4];  ///< sums, before and after
};

struct Fp4Instruction {
  std::string_view name;  ///< "mma.m16n8k64" or "mma.m16n8k64 in software"
  bool in_software = false;
  /// Multiplies the cases. Thread ids of the scales are as in PTX: 0 or 1 for A, 0 to 3 for B.
  void (*multiply)(std::span<Fp4Case> cases, int a_thread, int b_thread, Device device) = nullptr;
};

}  // namespace nvfp4
