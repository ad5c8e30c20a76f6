#pragma once

#include "backends/cuda/dependent_launch.cuh"
#include "backends/cuda/device/bracket.cuh"
#include "backends/cuda/device/row.cuh"
#include "backends/cuda/device/swiglu.cuh"

/// SwiGLU without measured scales, so that blocks of 16 are independent. A thread has the same
/// block of many rows and loads the next row while it encodes. Codes are computed from estimates.
/// About one block in thousands is ambiguous and is computed exactly. The kernel requires the max
/// quantizer and aligned rows. Device code only.
namespace nvfp4::cuda {

inline constexpr int kSwigluThreads = 128;
/// Number of thread blocks on a multiprocessor.
template <DType kType>
inline constexpr int kSwigluResident = kType == DType::f32 ? 4 : 5;

/// The codes of a block of swiglu() and the code of its scale.
struct SwigluCodes {
  uint2 elements;
  std::uint32_t scale;
  bool certain;
};

template <DType kType>
__device__ __forceinline__ SwigluCodes estimated_codes(const float (&v)[16],
                                                       std::uint32_t gate_bits,
                                                       const Encoder& encoder) {
  const float error = silu_error(Block<kType>::magnitude(gate_bits));
  const float amax = maximum_or_nan(v), off = amax * (error + 0x1p-22f);
  const std::uint32_t code = encoder.scale_code(amax + off);
  const Bracket bracket(error);
  const float eighth = encoder.eighth(code);
  std::uint32_t doubt = code ^ encoder.scale_code(amax - off);
  const uint2 words = {encode8_between(v, eighth, bracket, doubt),
                       encode8_between(v + 8, eighth, bracket, doubt)};
  // Errors are relative. An estimate may underflow only if its element's code is 0, because amax is
  // far from underflow.
  return {words, code,
          doubt == 0 && code != 0 && gate_bits <= kFastGateBits<kType> && amax >= 0x1p-75f &&
              amax <= 0x1p75f && encoder.ordinary};
}

template <DType kType>
__device__ __forceinline__ SwigluCodes exact_codes(const GateAndUp<kType>& place, float limit,
                                                   const Encoder& encoder) {
  Block<kType> gate, up;
  place.load(gate, up);
  float v[16];
  swiglu_block(gate, up, limit, v);
  const std::uint32_t code = encoder.scale_code(maximum_without_nans(v));
  return {encoder.encode(v, code), code, true};
}

/// Processes blocks. `step` is the number of rows that the grid processes at once: whole tiles of
/// scales, unless it is all rows. kStores: stores values instead of quantizing.
template <DType kType, bool kStores>
__global__ void __launch_bounds__(kSwigluThreads, kSwigluResident<kType>)
    swiglu_blocks_kernel(const RowArgs a, std::int32_t step) {
  ptx::griddepcontrol_wait();
  ptx::griddepcontrol_launch_dependents();
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
    float v[16], u[16];
    std::uint32_t gate_bits = 0;
    if constexpr (kStores) {
      swiglu_block(gate, up, a.limit, v);
    } else {
      gate_bits = gate.amax_bits();
#pragma unroll
      for (int i = 0; i < 16; ++i) {
        v[i] = gate.value(i);
        u[i] = up.value(i);
        asm volatile("" : "+f"(v[i]), "+f"(u[i]));  // forces the next loads to be issued first
      }
    }
    const std::int32_t now = row;
    const GateAndUp<kType> place_now = place;
    row += step;
    if (row < a.rows) {
      place.first += step * a.x_stride;
      place.load(gate, up);
    }
    if constexpr (kStores) {
      store_values(a.y.data, a.y.dtype, now * a.y.stride + std::int64_t{block} * 16, v);
    } else {
      swiglu_estimate(a.limit, v, u);
      if (a.of_vectors) {
        const GlobalScale global = a.globals.of(now);
        encoder = Encoder(global.divisor);
        if (a.write_globals && block == 0) a.global_scale[now] = global.multiplier;
      }
      SwigluCodes made = estimated_codes<kType>(v, gate_bits, encoder);
      if (!made.certain) [[unlikely]]
        made = exact_codes(place_now, a.limit, encoder);
      *codes = made.elements;
      *scale = static_cast<std::uint8_t>(made.scale);
      codes += code_step;
      scale += scale_step;
    }
    if (row >= a.rows) break;
  }
}

}  // namespace nvfp4::cuda
