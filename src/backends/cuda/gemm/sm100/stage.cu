#include "backends/cuda/device/block.cuh"
#include "backends/cuda/gemm/epilogue_values.cuh"
#include "backends/cuda/gemm/sm100/stage.h"
#include "backends/cuda/runtime.h"

namespace nvfp4::cuda::sm100 {
namespace {

constexpr int kThreads = 256;

/// Reorders the scales of x. A thread has four blocks of a row, which are adjacent in a tile.
__global__ void __launch_bounds__(kThreads)
    tile_scales_kernel(const std::uint8_t* scales, ScaleLayout layout, std::int64_t rows,
                       std::int64_t all_blocks, std::int64_t first, std::int64_t blocks,
                       std::int64_t words, std::int64_t count, std::uint8_t* to) {
  const std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= count) return;
  const std::int64_t row = i / words, block = i % words * 4;
  std::uint32_t four = 0;
  for (int j = 0; j < 4; ++j)
    if (row < rows && block + j < blocks)
      four |=
          std::uint32_t{scales[scale_offset_of(layout, row, first + block + j, rows, all_blocks)]}
          << 8 * j;
  *reinterpret_cast<std::uint32_t*>(to + Tiled128x4Scales::offset(row, block, rows, blocks)) = four;
}

/// Applies the epilogue. A thread has four columns of a row.
__global__ void __launch_bounds__(kThreads)
    finish_kernel(const __grid_constant__ KernelArguments p, int group, const float* sums) {
  const std::int64_t quads = p.n / 4;
  const std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= p.m_total * quads) return;
  const int row = static_cast<int>(i / quads), column = static_cast<int>(i % quads) * 4;
  const float4 sum = *reinterpret_cast<const float4*>(sums + std::int64_t{row} * p.n + column);
  LinearCombination finish[4];
  combinations_of_four(p, group, column, finish);
  const float x_global = x_global_of(p, row);
  const float v[4] = {finish[0](sum.x, x_global), finish[1](sum.y, x_global),
                      finish[2](sum.z, x_global), finish[3](sum.w, x_global)};
  store_values_of_four(p, row * p.out_stride + group * p.out_group_cols + column, v, true, 4);
}

__global__ void factors_kernel(const __grid_constant__ KernelArguments p, int group, float* to) {
  to[0] = LinearCombination(p, group, 0).factor * x_global_of(p, 0);
  to[1] = 0;
}

unsigned blocks_for(std::int64_t threads) {
  return static_cast<unsigned>(ceil_div(threads, kThreads));
}

}  // namespace

void tile_scales(const QuantizedView& x, std::int64_t first, std::int64_t blocks, std::uint8_t* to,
                 cudaStream_t stream) {
  const std::int64_t words = ceil_div(blocks, 4);
  const std::int64_t count = round_up(x.shape.rows, 128) * words;
  if (count == 0) return;
  tile_scales_kernel<<<blocks_for(count), kThreads, 0, stream>>>(
      x.scales, x.shape.layout, x.shape.rows, x.shape.blocks(), first, blocks, words, count, to);
  check(cudaGetLastError(), "gemm: scales of x");
}

void set_factors(const KernelArguments& p, int group, float* to, cudaStream_t stream) {
  factors_kernel<<<1, 1, 0, stream>>>(p, group, to);
  check(cudaGetLastError(), "gemm: factors");
}

void finish(const KernelArguments& p, int group, const float* sums, cudaStream_t stream) {
  finish_kernel<<<blocks_for(std::int64_t{p.m_total} * (p.n / 4)), kThreads, 0, stream>>>(p, group,
                                                                                          sums);
  check(cudaGetLastError(), "gemm: factors and bias");
}

}  // namespace nvfp4::cuda::sm100
