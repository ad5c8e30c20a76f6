#pragma once
#include <cmath>

#include "backends/cuda/gemm/epilogue_values.cuh"
namespace nvfp4::cuda {
inline float swiglu_one(float gate, float up, float) { return gate / (1 + std::exp(-gate)) * up; }
/// Without quantization.
inline void finish_outputs(const GemmArguments& p, int token, int column, const float (&v)[4],
                           bool inside) {
  if (inside) store_values_of_four(p, token * p.out_stride + column, v, true, 4);
}
}  // namespace nvfp4::cuda
