#pragma once

#include <cstdint>

#include "nvfp4/layout.h"

namespace nvfp4::cuda::sm120 {

/// x as a kernel reads it: codes, two a byte, and scales in any layout. K is a multiple of 64, so
/// that the scales of four blocks of a row are a word, at the same distance from one to the next.
struct QuantizedX {
  const std::uint8_t* codes = nullptr;
  const std::uint8_t* scales = nullptr;
  std::int64_t row_bytes = 0;   ///< of codes
  std::int64_t scale_step = 0;  ///< from a row's word to its next
  ScaleLayout layout = ScaleLayout::linear;
  int rows = 0, blocks = 0;  ///< of the whole matrix
};

}  // namespace nvfp4::cuda::sm120
