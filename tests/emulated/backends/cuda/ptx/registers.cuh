#pragma once
#include "simt.h"
namespace nvfp4::cuda::ptx {
template <int kTable>
std::uint32_t lop3(std::uint32_t a, std::uint32_t b, std::uint32_t c) {
  static_assert(kTable == 0xE4);  // c ? a : b
  return (a & c) | (b & ~c);
}
}  // namespace nvfp4::cuda::ptx
