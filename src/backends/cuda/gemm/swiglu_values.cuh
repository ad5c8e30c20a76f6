#pragma once

#include "backends/cuda/device/encode.cuh"
#include "backends/cuda/device/row.cuh"
#include "backends/cuda/device/swiglu.cuh"
#include "backends/cuda/gemm/epilogue_values.cuh"
#include "backends/cuda/gemm/fragment_layout.h"

/// Converts sums of gate and up to values of SwiGLU, stored or quantized. The epilogues of all
/// architectures share these functions.
namespace nvfp4::cuda {

/// The combinations of gate and up of one output.
struct SwigluCombination {
  LinearCombination gate, up;

  SwigluCombination() = default;
  /// `packed` is the packed row of gate.
  __device__ __forceinline__ SwigluCombination(const KernelArguments& p, int group, int packed) {
    const auto row = [&](int of) {
      return static_cast<int>(gate_up_row(min(of, p.n - 1), p.n / 2, p.interleave));
    };
    gate = LinearCombination(p, group, row(packed));
    up = LinearCombination(p, group, row(packed + 8));
  }
  __device__ __forceinline__ float operator()(const KernelArguments& p, float gate_sum,
                                              float up_sum, float x_global) const {
    return swiglu_one(gate(gate_sum, x_global), up(up_sum, x_global), p.limit);
  }
};

/// Quantizes a block of 16 outputs of a row of x.
__device__ __forceinline__ void quantize_block(const KernelArguments& p, int token, int column,
                                               const float (&v)[16]) {
  const BlockMaximum maximum = maximum_of(v);
  const Encoder encoder(p.out_globals.of(token).divisor);
  const std::uint32_t code = encoder.scale_code(maximum.amax);
  const std::int64_t blocks = p.n / 32, block = column / 16;
  reinterpret_cast<uint2*>(p.codes)[token * blocks + block] = encoder(v, code, maximum.has_nan);
  p.scales[scale_offset_of(p.scale_layout, token, block, p.m_total, blocks)] =
      static_cast<std::uint8_t>(code);
}

/// Stores four adjacent outputs of a row of x.
__device__ __forceinline__ void store_outputs(const KernelArguments& p, int token, int column,
                                              const float (&v)[4]) {
  store_values_of_four(p, token * p.out_stride + column, v, true, 4);
}
/// Stores or quantizes four adjacent outputs; those outside are skipped. All lanes of a warp must
/// call it: with some of them the compiler would treat the following code as divergent.
__device__ __forceinline__ void finish_outputs(const KernelArguments& p, int token, int column,
                                               const float (&v)[4], bool inside) {
  if (p.codes == nullptr) {
    if (inside) store_outputs(p, token, column, v);
    return;
  }
  const int lane = static_cast<int>(threadIdx.x) % 32, first = lane & ~3;
  float block[16];
#pragma unroll
  for (int i = 0; i < 16; ++i) block[i] = __shfl_sync(~0u, v[i % 4], first + i / 4);
  if (inside && lane == first) quantize_block(p, token, column, block);
}

}  // namespace nvfp4::cuda
