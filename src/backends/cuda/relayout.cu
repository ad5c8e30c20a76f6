#include "backends/cuda/device/block.cuh"
#include "backends/cuda/launchers.h"
#include "backends/cuda/runtime.h"

namespace nvfp4::cuda {
namespace {

constexpr int kThreads = 256;

/// Writes the byte of every (row, block), including padding: the matrix is enlarged to cover the
/// padding of every layout. Bytes outside the matrix are zero.
__global__ void __launch_bounds__(kThreads)
    relayout_kernel(const std::uint8_t* in, ScaleLayout in_layout, std::uint8_t* out,
                    ScaleLayout out_layout, std::int64_t rows, std::int64_t blocks,
                    std::int64_t grown_blocks, std::int64_t count, std::int64_t out_bytes) {
  const std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= count) return;
  const std::int64_t row = i / grown_blocks, block = i % grown_blocks;
  const bool inside = row < rows && block < blocks;
  if (out_layout == ScaleLayout::linear && !inside) return;
  const std::int64_t to = scale_offset_of(out_layout, row, block, rows, blocks);
  if (to < out_bytes)
    out[to] = inside ? in[scale_offset_of(in_layout, row, block, rows, blocks)] : 0;
}

}  // namespace

void relayout(const std::uint8_t* in, ScaleLayout in_layout, std::uint8_t* out,
              ScaleLayout out_layout, std::int64_t rows, std::int64_t blocks, Device device,
              Stream stream) {
  const std::int64_t out_bytes = scale_bytes(out_layout, rows, blocks);
  if (out_bytes == 0) return;
  const Current current(device);
  const std::int64_t row_step = out_layout == ScaleLayout::tiled_128x4       ? 128
                                : out_layout == ScaleLayout::tiled_8x4       ? 8
                                : out_layout == ScaleLayout::packed_mn_major ? 4
                                                                             : 1;
  const std::int64_t grown_blocks = round_up(blocks, 4);
  const std::int64_t count = round_up(rows, row_step) * grown_blocks;
  relayout_kernel<<<static_cast<unsigned>(ceil_div(count, kThreads)), kThreads, 0,
                    stream_of(stream)>>>(in, in_layout, out, out_layout, rows, blocks, grown_blocks,
                                         count, out_bytes);
  check(cudaGetLastError(), "relayout: kernel launch");
}

}  // namespace nvfp4::cuda
