#pragma once
#include "selftest/omma_arithmetic.h"
#include "simt.h"
namespace nvfp4::cuda::ptx {
/// Lane 4g + q: register r of A row g + 8 (r & 1), columns 8q + 32 (r >> 1) to + 7; of B column g,
/// rows 8q + 32r to + 7; D: register r row g + 8 (r >> 1), column 2q + (r & 1). Scales of rows g
/// and g + 8 of A in lanes 4g + 2 kA and the next, of column g of B in lane 4g + kB (source: PTX
/// ISA, "mma.m16n8k64", "Block Scaling for mma.sync").
template <int kA = 0, int kB = 0>
inline void mma_m16n8k64_nvfp4(float (&d)[4], const std::uint32_t (&a)[4], std::uint32_t b0,
                               std::uint32_t b1, std::uint32_t a_scales, std::uint32_t b_scales) {
  auto& words = emulated::warp_words().of;
  const unsigned lane = threadIdx.x % 32, g = lane / 4, q = lane % 4;
  std::memcpy(words[lane], a, 16);
  words[lane][4] = b0;
  words[lane][5] = b1;
  words[lane][6] = a_scales;
  words[lane][7] = b_scales;
  emulated::warp_barrier();
  for (unsigned r = 0; r < 4; ++r) {
    const unsigned column = 2 * q + (r & 1);
    std::uint32_t row_codes[8], column_codes[8];
    for (unsigned eight = 0; eight < 8; ++eight) {
      row_codes[eight] = words[4 * g + eight % 4][(r >> 1) + 2 * (eight / 4)];
      column_codes[eight] = words[4 * column + eight % 4][4 + eight / 4];
    }
    d[r] = std::bit_cast<float>(omma::add_product(std::bit_cast<std::uint32_t>(d[r]), row_codes,
                                                  words[4 * g + 2 * kA + (r >> 1)][6], column_codes,
                                                  words[4 * column + kB][7]));
  }
  emulated::warp_barrier();
}
}  // namespace nvfp4::cuda::ptx
