#pragma once
#include "quantizers/encode_block.h"
namespace nvfp4::cuda {
struct BlockMaximum {
  float amax;
  bool has_nan;
};
inline BlockMaximum maximum_of(const float* v) { return {block_amax(v, 16), false}; }
}  // namespace nvfp4::cuda
