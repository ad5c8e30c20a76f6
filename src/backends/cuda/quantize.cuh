#pragma once

#include "backends/cuda/dependent_launch.cuh"
#include "backends/cuda/device/encode.cuh"
#include "backends/cuda/device/globals.cuh"
#include "backends/cuda/device/search.cuh"
#include "nvfp4/quantize.h"

/// Quantizes without fusion: a thread encodes a block of 16 or 32. Device code only.
namespace nvfp4::cuda {

struct QuantizeArgs {
  MatrixView x;
  QuantizedSpan out;
  Quantizer quantizer;
  Globals globals;
  const float* weights;
  const float* hessian;
  std::int64_t hessian_stride;
  bool write_globals;   ///< copies given global scales to out
  bool aligned;         ///< is_aligned(x)
  bool dense;           ///< no gap between the rows of x
  std::uint32_t count;  ///< blocks of this launch
  std::int64_t row0;    ///< first row, or first row of blocks if blocks run along columns
  Divider per_row;      ///< blocks in a row, or columns
};

/// Returns the power of two that scales the largest of the `depth` weights into [1, 2). All threads
/// of the block must call it.
__device__ inline float weight_normalizer(const float* weights, std::int64_t depth) {
  __shared__ std::uint32_t largest;
  if (threadIdx.x == 0) largest = 0;
  __syncthreads();
  std::uint32_t m = 0;
  for (std::int64_t i = threadIdx.x; i < depth; i += blockDim.x)
    m = max(m, __float_as_uint(__ldg(weights + i)) & 0x7FFFFFFFu);
  atomicMax(&largest, m);
  __syncthreads();
  int exponent = 0;
  frexpf(__uint_as_float(largest), &exponent);
  return largest == 0 ? 1.0f : ldexpf(1.0f, 1 - exponent);
}

template <int kBlockSize>
__device__ inline std::uint32_t choose_weighted(const QuantizeArgs& a, const float* x, float amax,
                                                float divisor, std::int64_t block,
                                                float normalizer) {
  float w[kBlockSize];
#pragma unroll
  for (int i = 0; i < kBlockSize; ++i)
    w[i] = __ldg(a.weights + block * kBlockSize + i) * normalizer;
  return choose_code<kBlockSize>(a.quantizer, x, amax, divisor, w);
}

__device__ inline void write_global(const QuantizedSpan& out, std::int64_t vector,
                                    const GlobalScale& g) {
  if (out.shape.scope == GlobalScope::vector)
    out.global_scale[vector] = g.multiplier;
  else if (vector == 0)
    out.global_scale[0] = g.multiplier;
}

/// Quantizes rows. kSearch: any quantizer but max; kAligned is for max only. A block has kHalves
/// times 16 elements.
template <DType kType, bool kSearch, int kHalves, int kUnroll, bool kAligned>
__global__ void __launch_bounds__(256) quantize_rows_kernel(const QuantizeArgs a) {
  ptx::griddepcontrol_wait();
  ptx::griddepcontrol_launch_dependents();
  constexpr int kBlockSize = 16 * kHalves;
  const std::uint32_t blocks = a.per_row.divisor;
  const std::uint32_t first = blockIdx.x * (blockDim.x * kUnroll) + threadIdx.x;
  float normalizer = 1.0f;
  if constexpr (kSearch)
    if (a.weights) normalizer = weight_normalizer(a.weights, a.out.shape.depth());

  Block<kType> loaded[kUnroll][kHalves];
  std::uint32_t rows[kUnroll], cols[kUnroll];
#pragma unroll
  for (int u = 0; u < kUnroll; ++u) {
    const std::uint32_t index = first + u * blockDim.x;
    if (index >= a.count) break;
    rows[u] = a.per_row.quotient(index);
    cols[u] = index - rows[u] * blocks;
    const std::int64_t element = a.dense
                                     ? std::int64_t{index} * kBlockSize
                                     : rows[u] * a.x.stride + std::int64_t{cols[u]} * kBlockSize;
    const char* p =
        static_cast<const char*>(a.x.data) + (a.row0 * a.x.stride + element) * kElementBytes<kType>;
#pragma unroll
    for (int h = 0; h < kHalves; ++h)
      loaded[u][h] =
          load_block<kType, !kAligned>(p + h * 16 * kElementBytes<kType>, kSearch && a.aligned);
  }
  GlobalScale global = a.globals.of(a.row0 + (first < a.count ? rows[0] : 0));
  Encoder encoder(global.divisor);
#pragma unroll
  for (int u = 0; u < kUnroll; ++u) {
    const std::uint32_t index = first + u * blockDim.x;
    if (index >= a.count) break;
    const std::int64_t row = a.row0 + rows[u];
    if (u > 0 && a.globals.of_vectors) {
      global = a.globals.of(row);
      encoder = Encoder(global.divisor);
    }
    uint2* codes =
        reinterpret_cast<uint2*>(a.out.codes) + (a.row0 * blocks + std::int64_t{index}) * kHalves;
    std::uint32_t code;
    if constexpr (!kSearch) {
      Block<kType>& block = loaded[u][0];
      std::uint32_t bits = block.amax_bits();
      if (bits > Block<kType>::kInfinity) bits = block.replace_nans();
      code = encoder.scale_code(Block<kType>::magnitude(bits));
      codes[0] = encoder(block, code);
    } else {
      float v[kBlockSize];
      Loaded16 all;
#pragma unroll
      for (int h = 0; h < kHalves; ++h) {
        const Loaded16 half = unpack<kType>(loaded[u][h], v + 16 * h);
        all.amax = fmaxf(all.amax, half.amax);
        all.has_nan |= half.has_nan;
      }
      if (a.weights)
        code = choose_weighted<kBlockSize>(a, v, all.amax, global.divisor, cols[u], normalizer);
      else
        code = choose_code<kBlockSize>(a.quantizer, v, all.amax, global.divisor, nullptr);
#pragma unroll
      for (int h = 0; h < kHalves; ++h) codes[h] = encoder(v + 16 * h, code, all.has_nan);
    }
    const std::int64_t offset =
        a.out.shape.layout == ScaleLayout::linear
            ? a.row0 * blocks + index
            : scale_offset_of(a.out.shape.layout, row, cols[u], a.out.shape.rows, blocks);
    a.out.scales[offset] = static_cast<std::uint8_t>(code);
    if (a.write_globals && cols[u] == 0) write_global(a.out, row, global);
  }
}

/// Quantizes blocks along columns. Adjacent threads take adjacent columns.
template <DType kType, int kHalves>
__global__ void __launch_bounds__(256) quantize_columns_kernel(const QuantizeArgs a) {
  constexpr int kBlockSize = 16 * kHalves;
  using Stored = std::conditional_t<kType == DType::f32, float, std::uint16_t>;
  const float normalizer = a.weights ? weight_normalizer(a.weights, a.out.shape.depth()) : 1.0f;
  const std::uint32_t index = blockIdx.x * blockDim.x + threadIdx.x;
  if (index >= a.count) return;
  const std::uint32_t down = a.per_row.quotient(index);
  const std::uint32_t column = index - down * a.per_row.divisor;
  const std::int64_t block = a.row0 + down;
  const GlobalScale global = a.globals.of(column);
  float v[kBlockSize];
  const Stored* p = static_cast<const Stored*>(a.x.data) + block * kBlockSize * a.x.stride + column;
#pragma unroll
  for (int i = 0; i < kBlockSize; ++i) {
    const Stored bits = __ldg(p + i * a.x.stride);
    if constexpr (kType == DType::f32)
      v[i] = bits;
    else if constexpr (kType == DType::bf16)
      v[i] = BF16{bits}.to_float();
    else
      v[i] = __half2float(__half(__half_raw{bits}));
  }
  bool has_nan = false;
  float amax = 0;
#pragma unroll
  for (int i = 0; i < kBlockSize; ++i) {
    has_nan |= isnan(v[i]);
    amax = fmaxf(amax, fabsf(v[i]));
  }
  const std::uint32_t code =
      a.weights ? choose_weighted<kBlockSize>(a, v, amax, global.divisor, block, normalizer)
                : choose_code<kBlockSize>(a.quantizer, v, amax, global.divisor, nullptr);
  const Encoder encoder(global.divisor);
  const QuantizedShape& s = a.out.shape;
#pragma unroll
  for (int h = 0; h < kHalves; ++h) {
    const uint2 codes = encoder(v + 16 * h, code, has_nan);
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const std::uint32_t word = i < 4 ? codes.x : codes.y;
      a.out.codes[(block * (kBlockSize / 2) + h * 8 + i) * s.cols + column] =
          static_cast<std::uint8_t>(word >> (i % 4 * 8));
    }
  }
  const std::int64_t offset =
      s.layout == ScaleLayout::linear
          ? block * s.cols + column
          : scale_offset_of(s.layout, column, block, s.cols, s.rows / kBlockSize);
  a.out.scales[offset] = static_cast<std::uint8_t>(code);
  if (a.write_globals && block == 0) write_global(a.out, column, global);
}

}  // namespace nvfp4::cuda
