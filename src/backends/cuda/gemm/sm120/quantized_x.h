#pragma once

#include <cstdint>

#include "nvfp4/layout.h"

namespace nvfp4::cuda::sm120 {

/// The quantized x of a kernel: codes, two in a byte, and scales in any layout. K is a multiple of
/// 64, so the scales of four blocks of a row are a word, at a constant step.
struct QuantizedX {
  const std::uint8_t* codes = nullptr;
  const std::uint8_t* scales = nullptr;
  std::int64_t row_bytes = 0;   ///< bytes of codes of a row
  std::int64_t scale_step = 0;  ///< bytes between words of a row
  ScaleLayout layout = ScaleLayout::linear;
  int rows = 0, blocks = 0;  ///< size of the whole matrix
};

}  // namespace nvfp4::cuda::sm120
