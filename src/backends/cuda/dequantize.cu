#include <algorithm>

#include "backends/cuda/device/block.cuh"
#include "backends/cuda/device/convert.cuh"
#include "backends/cuda/launchers.h"
#include "backends/cuda/runtime.h"

namespace nvfp4::cuda {
namespace {

__device__ float global_of(const QuantizedView& q, std::int64_t vector) {
  if (q.global_scale == nullptr) return 1.0f;
  return __ldg(q.global_scale + (q.shape.scope == GlobalScope::tensor ? 0 : vector));
}

constexpr int kThreads = 256;
constexpr std::int64_t kMostBlocks = std::int64_t{1} << 30;

/// q · scale · global, rounded once: the product of the first two is exact, and so are the powers
/// of two that keep every factor in range (global · 448 is finite).
struct Decoder {
  float scale, global;
  bool is_nan;
  float nan;  ///< what a CPU makes of it; the GPU's own NaN has other bits

  __device__ Decoder(std::uint8_t bits, float global_scale)
      : scale(E4M3{bits}.to_float() * 0x1p118f),
        global(global_scale * 0x1p8f),
        is_nan((bits & 0x7F) == E4M3::kNaN),
        nan(E4M3{bits}.to_float()) {}
  __device__ float operator()(std::uint32_t codes, int i) const {
    return is_nan ? nan : e2m1_scaled(codes, i) * scale * global;
  }
};

/// Each thread decodes 16 elements of a row.
template <int kUnroll>
__global__ void __launch_bounds__(kThreads)
    dequantize_rows_kernel(const QuantizedView q, const MatrixSpan out, Divider per_row,
                           std::int64_t row0, std::uint32_t count) {
  const std::uint32_t first = blockIdx.x * (kThreads * kUnroll) + threadIdx.x;
  const std::uint32_t pieces = per_row.divisor;
  const std::uint32_t in_block = static_cast<std::uint32_t>(q.shape.block) / 16;
  const std::int64_t blocks = q.shape.blocks();
  uint2 codes[kUnroll];
  std::uint8_t scales[kUnroll];
#pragma unroll
  for (int u = 0; u < kUnroll; ++u) {
    const std::uint32_t index = first + u * kThreads;
    if (index >= count) break;
    const std::uint32_t down = per_row.quotient(index);
    const std::int64_t row = row0 + down;
    const std::uint32_t piece = index - down * pieces;
    codes[u] = __ldg(reinterpret_cast<const uint2*>(q.codes) + (row * pieces + piece));
    scales[u] = __ldg(q.scales +
                      scale_offset_of(q.shape.layout, row, piece / in_block, q.shape.rows, blocks));
  }
#pragma unroll
  for (int u = 0; u < kUnroll; ++u) {
    const std::uint32_t index = first + u * kThreads;
    if (index >= count) break;
    const std::uint32_t down = per_row.quotient(index);
    const std::int64_t row = row0 + down;
    const Decoder decode(scales[u], global_of(q, row));
    float v[16];
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      v[i] = decode(codes[u].x, i);
      v[i + 8] = decode(codes[u].y, i);
    }
    store_values(out.data, out.dtype, row * out.stride + std::int64_t{index - down * pieces} * 16,
                 v);
  }
}

/// Blocks down the columns: a thread decodes the two rows of a byte.
__global__ void __launch_bounds__(kThreads)
    dequantize_columns_kernel(const QuantizedView q, const MatrixSpan out, Divider per_row,
                              std::int64_t row0, std::uint32_t count) {
  const std::uint32_t index = blockIdx.x * kThreads + threadIdx.x;
  if (index >= count) return;
  const std::uint32_t down = per_row.quotient(index);
  const std::int64_t pair = row0 + down, column = index - down * per_row.divisor;
  const QuantizedShape& s = q.shape;
  const std::int64_t block = pair * 2 / s.block;
  const std::int64_t offset = s.layout == ScaleLayout::linear
                                  ? block * s.cols + column
                                  : scale_offset_of(s.layout, column, block, s.cols, s.blocks());
  const Decoder decode(__ldg(q.scales + offset), global_of(q, column));
  const std::uint32_t codes = __ldg(q.codes + pair * s.cols + column);
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const float v = decode(codes, i);
    const std::int64_t at = (pair * 2 + i) * out.stride + column;
    if (out.dtype == DType::f32)
      static_cast<float*>(out.data)[at] = v;
    else
      static_cast<std::uint16_t*>(out.data)[at] =
          out.dtype == DType::bf16 ? BF16::from_float(v).bits : FP16::from_float(v).bits;
  }
}

}  // namespace

void dequantize(const QuantizedView& q, const MatrixSpan& out, Stream stream) {
  const QuantizedShape& s = q.shape;
  if (s.rows == 0 || s.cols == 0) return;
  const Current current(q.device);
  const bool rows = s.axis == BlockAxis::rows;
  const std::int64_t across = rows ? s.cols / 16 : s.cols, down = rows ? s.rows : s.rows / 2;
  const std::int64_t step = std::max<std::int64_t>(1, kMostBlocks / across);
  const Divider per_row(static_cast<std::uint32_t>(across));
  for (std::int64_t r = 0; r < down; r += step) {
    const auto count = static_cast<std::uint32_t>(std::min(step, down - r) * across);
    if (rows)
      dequantize_rows_kernel<2><<<static_cast<unsigned>(ceil_div(count, kThreads * 2)), kThreads, 0,
                                  stream_of(stream)>>>(q, out, per_row, r, count);
    else
      dequantize_columns_kernel<<<static_cast<unsigned>(ceil_div(count, kThreads)), kThreads, 0,
                                  stream_of(stream)>>>(q, out, per_row, r, count);
  }
  check(cudaGetLastError(), "dequantize: kernel launch");
}

}  // namespace nvfp4::cuda
