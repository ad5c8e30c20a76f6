#pragma once

#include "nvfp4/host_device.h"

/// The operand layout of mma.sync.m16n8k64 of kind mxf4nvf4 with block scales (scale_vec::4X). A
/// warp has 32 lanes; g = lane / 4, q = lane % 4. Source: PTX ISA, "Matrix Fragments for
/// mma.m16n8k64", "Block Scaling for mma.sync". Host and device.
namespace nvfp4::cuda::omma {

inline constexpr int kM = 16, kN = 8, kK = 64, kBlocks = 4;  ///< kBlocks: blocks of 16 along K
inline constexpr int kARegisters = 4, kBRegisters = 2, kNibbles = 8, kDRegisters = 4;

struct Element {
  int line;  ///< row of A and D, column of B
  int k;     ///< for D: its column
  bool operator==(const Element&) const = default;
};

/// Returns the element in bits 4 · nibble to 4 · nibble + 3 of a register.
NVFP4_HD constexpr Element a_element(int lane, int reg, int nibble) {
  return {lane / 4 + 8 * (reg % 2), lane % 4 * 8 + 32 * (reg / 2) + nibble};
}
NVFP4_HD constexpr Element b_element(int lane, int reg, int nibble) {
  return {lane / 4, lane % 4 * 8 + 32 * reg + nibble};
}
/// Returns the FP32 element of a register.
NVFP4_HD constexpr Element d_element(int lane, int reg) {
  return {lane / 4 + 8 * (reg / 2), lane % 4 * 2 + reg % 2};
}

/// Returns the lane whose register holds the four scales of a row of A; byte j is the scale of
/// block j. thread_id is 0 or 1, an operand of the instruction. Thread ids of B other than 0 are
/// reported to differ from PTX's text; 0 is safe.
NVFP4_HD constexpr int a_scale_lane(int row, int thread_id) {
  return row % 8 * 4 + 2 * thread_id + row / 8;
}
/// Returns the lane for a column of B. thread_id is 0 to 3.
NVFP4_HD constexpr int b_scale_lane(int column, int thread_id) { return column * 4 + thread_id; }

}  // namespace nvfp4::cuda::omma
