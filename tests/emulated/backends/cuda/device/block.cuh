#pragma once
#include "nvfp4/layout.h"
namespace nvfp4::cuda {
inline std::int64_t scale_offset_of(ScaleLayout layout, std::int64_t row, std::int64_t block,
                                    std::int64_t rows, std::int64_t blocks) {
  return scale_offset(layout, row, block, rows, blocks);
}
}  // namespace nvfp4::cuda
