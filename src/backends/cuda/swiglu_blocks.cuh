#pragma once

#include "backends/cuda/device/row.cuh"
#include "backends/cuda/device/swiglu.cuh"
#include "backends/cuda/early.cuh"

/// SwiGLU where nothing is measured, so that no block of 16 depends on another: a thread has one
/// block of many rows, and reads that of the next row while it encodes. For the max quantizer and
/// aligned rows. Device code only.
namespace nvfp4::cuda {

inline constexpr int kSwigluThreads = 128;
/// Thread blocks of a multiprocessor.
template <DType kType>
inline constexpr int kSwigluResident = kType == DType::f32 ? 4 : 5;

/// `step`: rows that the grid has threads for; whole tiles of scales, if not all rows. kStores:
/// instead of quantizing.
template <DType kType, bool kStores>
__global__ void __launch_bounds__(kSwigluThreads, kSwigluResident<kType>)
    swiglu_blocks_kernel(const RowArgs a, std::int32_t step) {
  wait_for_kernel_before();
  allow_next_kernel();
  const std::int32_t thread = static_cast<std::int32_t>(blockIdx.x) * kSwigluThreads +
                              static_cast<std::int32_t>(threadIdx.x);
  std::int32_t row = thread / a.blocks;
  const std::int32_t block = thread - row * a.blocks;
  if (row >= step) return;
  GateAndUp<kType> place(a.x + row * a.x_stride, block, a.blocks, a.interleave);
  Block<kType> gate, up;
  place.load(gate, up);
  Encoder encoder;
  if (!kStores && !a.of_vectors) {
    const GlobalScale global = a.globals.of(0);
    encoder = Encoder(global.divisor);
    if (a.write_globals && thread == 0) *a.global_scale = global.multiplier;
  }
  std::uint8_t* scale = ScaleAddress(a, block).of(a.scale_steps, row);
  const std::int64_t scale_step =
      std::int64_t{step >> a.scale_steps.tile_shift} * a.scale_steps.tile;
  uint2* codes = reinterpret_cast<uint2*>(a.codes) + (std::int64_t{row} * a.blocks + block);
  const std::int64_t code_step = std::int64_t{step} * a.blocks;
#pragma unroll 1
  while (true) {
    float v[16];
    swiglu_block(gate, up, a.limit, v);
    const std::int32_t now = row;
    row += step;
    if (row < a.rows) {
      place.first += step * a.x_stride;
      place.load(gate, up);
    }
    if constexpr (kStores) {
      store_values(a.y.data, a.y.dtype, now * a.y.stride + std::int64_t{block} * 16, v);
    } else {
      if (a.of_vectors) {
        const GlobalScale global = a.globals.of(now);
        encoder = Encoder(global.divisor);
        if (a.write_globals && block == 0) a.global_scale[now] = global.multiplier;
      }
      const std::uint32_t code = encoder.scale_code(maximum_without_nans(v));
      *codes = encoder.encode(v, code);
      *scale = static_cast<std::uint8_t>(code);
      codes += code_step;
      scale += scale_step;
    }
    if (row >= a.rows) break;
  }
}

}  // namespace nvfp4::cuda
