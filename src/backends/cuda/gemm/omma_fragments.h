#pragma once

#include "nvfp4/host_device.h"

/// Where mma.sync.m16n8k64 of kind mxf4nvf4 with block scales (scale_vec::4X) has the elements of
/// its operands: 32 lanes, g = lane / 4, q = lane % 4 (source: PTX ISA, "Matrix Fragments for
/// mma.m16n8k64", "Block Scaling for mma.sync"). Host and device.
namespace nvfp4::cuda::omma {

inline constexpr int kM = 16, kN = 8, kK = 64, kBlocks = 4;  ///< blocks of 16 along K
inline constexpr int kARegisters = 4, kBRegisters = 2, kNibbles = 8, kDRegisters = 4;

struct Element {
  int line;  ///< row of A and D, column of B
  int k;     ///< of D: its column
  bool operator==(const Element&) const = default;
};

/// Bits 4 · nibble on of a register.
NVFP4_HD constexpr Element a_element(int lane, int reg, int nibble) {
  return {lane / 4 + 8 * (reg % 2), lane % 4 * 8 + 32 * (reg / 2) + nibble};
}
NVFP4_HD constexpr Element b_element(int lane, int reg, int nibble) {
  return {lane / 4, lane % 4 * 8 + 32 * reg + nibble};
}
/// FP32.
NVFP4_HD constexpr Element d_element(int lane, int reg) {
  return {lane / 4 + 8 * (reg / 2), lane % 4 * 2 + reg % 2};
}

/// The lane whose register has the four scales of a row of A, byte j those of block j; thread_id: 0
/// or 1, an operand of the instruction. Others have found that thread ids of B other than 0 do not
/// do what PTX says: 0 is safe.
NVFP4_HD constexpr int a_scale_lane(int row, int thread_id) {
  return row % 8 * 4 + 2 * thread_id + row / 8;
}
/// Of a column of B; thread_id: 0 to 3.
NVFP4_HD constexpr int b_scale_lane(int column, int thread_id) { return column * 4 + thread_id; }

}  // namespace nvfp4::cuda::omma
