#pragma once

#include "backends/cuda/device/block.cuh"
#include "backends/cuda/device/convert.cuh"
#include "nvfp4/quantize.h"

/// Dequantizes codes and scales.
namespace nvfp4::cuda {

__device__ inline float global_of(const QuantizedView& q, std::int64_t vector) {
  if (q.global_scale == nullptr) return 1.0f;
  return __ldg(q.global_scale + (q.shape.scope == GlobalScope::tensor ? 0 : vector));
}

/// Returns the offset of the scale of a vector and block, for both axes.
__device__ inline std::int64_t scale_offset_of(const QuantizedView& q, std::int64_t vector,
                                               std::int64_t block) {
  const QuantizedShape& s = q.shape;
  if (s.axis == BlockAxis::columns && s.layout == ScaleLayout::linear)
    return block * s.cols + vector;
  return scale_offset_of(s.layout, vector, block, s.vectors(), s.blocks());
}

/// Computes q · scale · global, rounded once. The first product is exact. Powers of two keep every
/// factor in range (global · 448 is finite).
struct Decoder {
  float scale, global;
  bool is_nan;
  float nan;  ///< the CPU's NaN; the GPU's has other bits

  __device__ Decoder(std::uint8_t bits, float global_scale)
      : scale(E4M3{bits}.to_float() * 0x1p118f),
        global(global_scale * 0x1p8f),
        is_nan((bits & 0x7F) == E4M3::kNaN),
        nan(E4M3{bits}.to_float()) {}
  __device__ float operator()(std::uint32_t codes, int i) const {
    return is_nan ? nan : e2m1_scaled(codes, i) * scale * global;
  }
};

}  // namespace nvfp4::cuda
