#include <algorithm>

#include "backends/cuda/dependent_launch.cuh"
#include "backends/cuda/device/value_table.cuh"
#include "backends/cuda/launchers.h"
#include "backends/cuda/runtime.h"

namespace nvfp4::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kUnroll = 2;
constexpr std::int64_t kMostBlocks = std::int64_t{1} << 30;

/// Stores the 16 values of each lane. Both lanes of a pair store half of one block at a time, so
/// that adjacent lanes fill whole sectors. The two blocks of a pair are adjacent. All lanes of
/// `mask` must call it.
__device__ void store_in_pairs(std::uint16_t* block, const std::uint32_t (&words)[8],
                               std::uint32_t mask) {
  const bool odd = threadIdx.x % 2 == 1;
  std::uint32_t first[4], second[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const std::uint32_t other = __shfl_xor_sync(mask, odd ? words[i] : words[4 + i], 1);
    first[i] = odd ? other : words[i];
    second[i] = odd ? words[4 + i] : other;
  }
  auto* to = reinterpret_cast<uint4*>(block - (odd ? 16 : 0)) + (odd ? 1 : 0);
  to[0] = {first[0], first[1], first[2], first[3]};
  to[2] = {second[0], second[1], second[2], second[3]};
}

/// Dequantizes rows: each thread takes kUnroll blocks of 16 elements. kPairs: the outputs of two
/// adjacent threads are adjacent and aligned to 16 bytes.
template <int kUnroll, bool kPairs>
__global__ void __launch_bounds__(kThreads)
    dequantize_rows_kernel(const QuantizedView q, const MatrixSpan out, Divider per_row,
                           std::int64_t row0, std::uint32_t count) {
  ptx::griddepcontrol_wait();
  ptx::griddepcontrol_launch_dependents();
  const std::uint32_t first = blockIdx.x * (kThreads * kUnroll) + threadIdx.x;
  const std::uint32_t pieces = per_row.divisor;
  const int halves = q.shape.block == 32 ? 1 : 0;  // a block of 32 is two pieces
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
                      scale_offset_of(q.shape.layout, row, piece >> halves, q.shape.rows, blocks));
  }
#pragma unroll
  for (int u = 0; u < kUnroll; ++u) {
    const std::uint32_t index = first + u * kThreads;
    const std::uint32_t mask = kPairs ? __ballot_sync(~0u, index < count) : 0;
    if (index >= count) continue;
    const std::uint32_t down = per_row.quotient(index);
    const std::int64_t row = row0 + down;
    const std::int64_t at = row * out.stride + std::int64_t{index - down * pieces} * 16;
    const Decoder decode(scales[u], global_of(q, row));
    if constexpr (kPairs) {
      ValueTable table;
      std::uint32_t words[8];
      if (table.make(decode, out.dtype)) {
        table.block(codes[u], words);
      } else {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          words[i] = pair_of(out.dtype, decode(codes[u].x, 2 * i), decode(codes[u].x, 2 * i + 1));
          words[4 + i] =
              pair_of(out.dtype, decode(codes[u].y, 2 * i), decode(codes[u].y, 2 * i + 1));
        }
      }
      store_in_pairs(static_cast<std::uint16_t*>(out.data) + at, words, mask);
    } else {
      float v[16];
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        v[i] = decode(codes[u].x, i);
        v[i + 8] = decode(codes[u].y, i);
      }
      store_values(out.data, out.dtype, at, v);
    }
  }
}

/// Dequantizes blocks along columns: a thread takes the two rows of a byte.
__global__ void __launch_bounds__(kThreads)
    dequantize_columns_kernel(const QuantizedView q, const MatrixSpan out, Divider per_row,
                              std::int64_t row0, std::uint32_t count) {
  const std::uint32_t index = blockIdx.x * kThreads + threadIdx.x;
  if (index >= count) return;
  const std::uint32_t down = per_row.quotient(index);
  const std::int64_t pair = row0 + down, column = index - down * per_row.divisor;
  const Decoder decode(__ldg(q.scales + scale_offset_of(q, column, pair * 2 / q.shape.block)),
                       global_of(q, column));
  const std::uint32_t codes = __ldg(q.codes + pair * q.shape.cols + column);
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
  const bool pairs = out.dtype != DType::f32 && is_aligned(out) && across % 2 == 0;
  const Divider per_row(static_cast<std::uint32_t>(across));
  for (std::int64_t r = 0; r < down; r += step) {
    const auto count = static_cast<std::uint32_t>(std::min(step, down - r) * across);
    if (rows)
      launch_dependent(
          "dequantize: kernel launch",
          {dim3(static_cast<unsigned>(ceil_div(count, kThreads * kUnroll))), dim3(kThreads),
           stream_of(stream)},
          pairs ? dequantize_rows_kernel<kUnroll, true> : dequantize_rows_kernel<kUnroll, false>, q,
          out, per_row, r, count);
    else
      dequantize_columns_kernel<<<static_cast<unsigned>(ceil_div(count, kThreads)), kThreads, 0,
                                  stream_of(stream)>>>(q, out, per_row, r, count);
  }
  check(cudaGetLastError(), "dequantize: kernel launch");
}

}  // namespace nvfp4::cuda
