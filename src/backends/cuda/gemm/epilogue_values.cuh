#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "backends/cuda/gemm/arguments.h"
#include "backends/cuda/gemm/dequantize_fragments.cuh"
#include "backends/cuda/gemm/tile_scheduler.cuh"

/// Converts sums to values of out: factors and bias in FP32, one rounding. The epilogues of all
/// architectures share these functions.
namespace nvfp4::cuda {

/// The factor and the bias of a row of W. The factor excludes the global scale of x.
struct LinearCombination {
  float factor, bias;

  LinearCombination() = default;
  __device__ __forceinline__ LinearCombination(const KernelArguments& p, float alpha,
                                               float w_global, float bias)
      : factor(kFragmentUnit * p.factor * alpha * w_global), bias(bias) {}
  __device__ __forceinline__ LinearCombination(const KernelArguments& p, int group, int row)
      : LinearCombination(p, p.alpha == nullptr ? 1.0f : __ldg(p.alpha + group),
                          __ldg(p.w_global + (p.w_global_per_row ? row_of(p, group, row) : group)),
                          p.bias == nullptr ? 0.0f : __ldg(p.bias + row_of(p, group, row))) {}
  __device__ __forceinline__ float operator()(float sum, float x_global) const {
    return __fmaf_rn(sum, factor * x_global, bias);
  }

 private:
  __device__ __forceinline__ static std::int64_t row_of(const KernelArguments& p, int group,
                                                        int row) {
    return static_cast<std::int64_t>(group) * p.n + row;
  }
};

/// Returns the global scale of a row of x.
__device__ __forceinline__ float x_global_of(const KernelArguments& p, int token) {
  return p.x_global == nullptr ? 1.0f : __ldg(p.x_global + (p.x_global_per_row ? token : 0));
}

__device__ __forceinline__ std::uint32_t pack_bf16(float low, float high) {
  const __nv_bfloat162 v = __floats2bfloat162_rn(low, high);
  return *reinterpret_cast<const std::uint32_t*>(&v);
}
__device__ __forceinline__ std::uint32_t pack_f16(float low, float high) {
  const __half2 v = __floats2half2_rn(low, high);
  return *reinterpret_cast<const std::uint32_t*>(&v);
}

/// Fills in the combinations of four adjacent rows. Rows beyond n repeat the last one; their
/// results are unused.
__device__ __forceinline__ void combinations_of_four(const KernelArguments& p, int group, int row,
                                                     LinearCombination (&finish)[4]) {
#pragma unroll
  for (int i = 0; i < 4; ++i) finish[i] = LinearCombination(p, group, min(row + i, p.n - 1));
}

/// Rounds and stores the first `count` of four values at element `at` of out. `all`: count is 4.
__device__ __forceinline__ void store_values_of_four(const KernelArguments& p, std::int64_t at,
                                                     const float (&v)[4], bool all, int count) {
  if (p.wide_stores && all) {
    if (p.out_type == DType::f32)
      *reinterpret_cast<float4*>(static_cast<float*>(p.out) + at) = {v[0], v[1], v[2], v[3]};
    else if (p.out_type == DType::bf16)
      *reinterpret_cast<uint2*>(static_cast<std::uint16_t*>(p.out) + at) = {pack_bf16(v[0], v[1]),
                                                                            pack_bf16(v[2], v[3])};
    else
      *reinterpret_cast<uint2*>(static_cast<std::uint16_t*>(p.out) + at) = {pack_f16(v[0], v[1]),
                                                                            pack_f16(v[2], v[3])};
    return;
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if (i >= count) break;
    if (p.out_type == DType::f32)
      static_cast<float*>(p.out)[at + i] = v[i];
    else
      static_cast<std::uint16_t*>(p.out)[at + i] = static_cast<std::uint16_t>(
          p.out_type == DType::bf16 ? pack_bf16(v[i], 0) : pack_f16(v[i], 0));
  }
}

/// Finishes and stores the sums of four adjacent rows of W for one row of x.
__device__ __forceinline__ void store_four(const KernelArguments& p, const WorkTile& work,
                                           int token, int row, float4 sum,
                                           const LinearCombination (&finish)[4]) {
  const float x = x_global_of(p, token);
  float v[4] = {sum.x, sum.y, sum.z, sum.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) v[i] = finish[i](v[i], x);
  store_values_of_four(
      p, token * p.out_stride + static_cast<std::int64_t>(work.group) * p.out_group_cols + row, v,
      row + 4 <= p.n, p.n - row);
}

}  // namespace nvfp4::cuda
