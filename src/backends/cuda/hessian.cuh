#pragma once

#include "backends/cuda/hessian_lanes.cuh"
#include "backends/cuda/hessian_tiles.cuh"
#include "backends/cuda/quantize.cuh"

/// Finds the scale with the smallest rᵀ H r. All vectors share the H of a block along K. A thread
/// block takes one block of K, and a thread takes a vector. Device code only.
namespace nvfp4::cuda {

template <int kSize>
struct HessianSearch;

template <>
struct HessianSearch<16> {
  using Workspace = Tiles[kHessianWarps];
  const SharedHessian<16>& shared;
  Tiles& tiles;
  const LoweredHessian lowered;

  __device__ HessianSearch(const SharedHessian<16>& s, Workspace& workspace)
      : shared(s), tiles(workspace[threadIdx.x / 32]), lowered(s) {}
  __device__ std::uint32_t operator()(const float (&x)[16], float divisor) const {
    return search_tiles(shared, lowered, tiles, x, divisor);
  }
};

template <>
struct HessianSearch<32> {
  using Workspace = float[kHessianWindow][kHessianThreads];
  const SharedHessian<32>& shared;
  float* squares;

  __device__ HessianSearch(const SharedHessian<32>& s, Workspace& workspace)
      : shared(s), squares(&workspace[0][threadIdx.x]) {}
  __device__ std::uint32_t operator()(const float (&x)[32], float divisor) const {
    return search_lane(shared, x, divisor, squares);
  }
};

/// Loads a block from element `start` on, along the row or the column.
template <DType kType, int kSize>
__device__ inline void load_values(const MatrixView& x, bool rows, std::int64_t start,
                                   float (&v)[kSize]) {
  if (rows && is_aligned(x)) {
#pragma unroll
    for (int h = 0; h < kSize / 16; ++h) {
      const Block<kType> b = load_block<kType>(
          static_cast<const char*>(x.data) + (start + 16 * h) * kElementBytes<kType>, true);
#pragma unroll
      for (int i = 0; i < 16; ++i) v[16 * h + i] = b.value(i);
    }
  } else {
    const std::int64_t step = rows ? 1 : x.stride;
#pragma unroll
    for (int i = 0; i < kSize; ++i) v[i] = load_element<kType>(x.data, start + i * step);
  }
}

template <DType kType, int kSize>
__global__ void __launch_bounds__(kHessianThreads, 2) hessian_kernel(const QuantizeArgs a) {
  __shared__ SharedHessian<kSize> shared;
  __shared__ typename HessianSearch<kSize>::Workspace workspace;
  const QuantizedShape& shape = a.out.shape;
  const std::int64_t block = blockIdx.x;
  for (int i = threadIdx.x; i < kSize * kSize; i += kHessianThreads)
    shared.h[i / kSize][i % kSize] =
        __ldg(a.hessian + (block * kSize + i / kSize) * a.hessian_stride + i % kSize);
  __syncthreads();
  find_bounds(shared);
  const HessianSearch<kSize> search(shared, workspace);

  const bool rows = shape.axis == BlockAxis::rows;
  const std::int64_t vectors = shape.vectors();
  for (std::int64_t first = std::int64_t{blockIdx.y} * kHessianThreads + threadIdx.x / 32 * 32;
       first < vectors; first += std::int64_t{gridDim.y} * kHessianThreads) {
    // A warp stays together: surplus lanes repeat the last vector.
    const std::int64_t vector = min(first + threadIdx.x % 32, vectors - 1);
    std::int64_t start =
        rows ? vector * a.x.stride + block * kSize : block * kSize * a.x.stride + vector;
    const GlobalScale global = a.globals.of(vector);
    float v[kSize];
    load_values<kType>(a.x, rows, start, v);
    bool has_nan = false;
#pragma unroll
    for (int i = 1; i < kSize; i += 2) has_nan |= !(v[i] < v[i - 1] || v[i] >= v[i - 1]);
    if (has_nan) {  // NaN counts as 0
#pragma unroll
      for (int i = 0; i < kSize; ++i) v[i] = isnan(v[i]) ? 0.0f : v[i];
    }
    const std::uint32_t code = search(v, global.divisor);
    asm volatile("" : "+l"(start));  // reload v: holding it takes too many registers
    load_values<kType>(a.x, rows, start, v);
    const Encoder encoder(global.divisor);
#pragma unroll
    for (int h = 0; h < kSize / 16; ++h) {
      const uint2 codes = encoder(v + 16 * h, code, has_nan);
      if (rows) {
        reinterpret_cast<uint2*>(
            a.out.codes)[(vector * shape.blocks() + block) * (kSize / 16) + h] = codes;
      } else {
#pragma unroll
        for (int i = 0; i < 8; ++i)
          a.out.codes[(block * (kSize / 2) + h * 8 + i) * shape.cols + vector] =
              static_cast<std::uint8_t>((i < 4 ? codes.x : codes.y) >> (i % 4 * 8));
      }
    }
    const std::int64_t offset =
        shape.layout == ScaleLayout::linear && !rows
            ? block * shape.cols + vector
            : scale_offset_of(shape.layout, vector, block, vectors, shape.blocks());
    a.out.scales[offset] = static_cast<std::uint8_t>(code);
    if (a.write_globals && block == 0) write_global(a.out, vector, global);
  }
}

}  // namespace nvfp4::cuda
