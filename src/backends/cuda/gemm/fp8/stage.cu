#include "backends/cuda/device/block.cuh"
#include "backends/cuda/gemm/epilogue_values.cuh"
#include "backends/cuda/gemm/fp8/decode_tile.cuh"
#include "backends/cuda/gemm/fp8/stage.h"
#include "backends/cuda/runtime.h"
#include "quantizers/fp8_rows.h"

namespace nvfp4::cuda::fp8 {
namespace {

constexpr int kThreads = 256, kWarps = kThreads / 32;

/// Quantizes a row for each thread block. An element is read (2 bytes) and written (1 byte) once;
/// the second pass over the row hits the L1 cache.
template <DType kType>
__global__ void __launch_bounds__(kThreads)
    quantize_rows_kernel(const MatrixView x, std::uint8_t* codes, float* factors) {
  const std::int64_t row = blockIdx.x;
  const char* const from = static_cast<const char*>(x.data) + row * x.stride * kElementBytes<kType>;
  const int blocks = static_cast<int>(x.cols / kBlock);
  const auto block = [&](int b) {
    return load_block<kType, false>(from + std::int64_t{b} * kBlock * kElementBytes<kType>, true);
  };
  std::uint32_t bits = 0;
#pragma unroll 4
  for (int b = static_cast<int>(threadIdx.x); b < blocks; b += kThreads)
    bits = max(bits, block(b).amax_bits());
  __shared__ std::uint32_t warps[kWarps];
  bits = __reduce_max_sync(~0u, bits);
  if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = bits;
  __syncthreads();
#pragma unroll
  for (int w = 0; w < kWarps; ++w) bits = max(bits, warps[w]);
  const float amax = Block<kType>::magnitude(min(bits, Block<kType>::kInfinity));
  const float factor = fp8_row_factor(amax), inverse = fp8_row_inverse(factor);
  if (threadIdx.x == 0) factors[row] = factor;
  auto* const to = reinterpret_cast<uint4*>(codes + row * x.cols);
#pragma unroll 2
  for (int b = static_cast<int>(threadIdx.x); b < blocks; b += kThreads) {
    const Block<kType> v = block(b);
    std::uint32_t words[4];
#pragma unroll
    for (int w = 0; w < 4; ++w) {
      const auto pair = [&](int i) {
        return ptx::cvt_e4m3x2_f32(v.value(i) * inverse, v.value(i + 1) * inverse);
      };
      words[w] = pair(4 * w) | pair(4 * w + 2) << 16;
    }
    to[b] = {words[0], words[1], words[2], words[3]};
  }
}

/// Computes the factors of 64 rows of W for each thread block, from 6 times the largest scale of a
/// row. It reads the scales, 1/16 byte for an element of W.
__global__ void __launch_bounds__(kThreads)
    weight_factors_kernel(const __grid_constant__ KernelArguments p, const StagedWeights to) {
  const std::uint8_t* const scales =
      p.weights + std::int64_t{blockIdx.x} * p.chunks * kTileBytes + kTileCodeBytes;
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  std::uint32_t most = 0;  // of rows g and g + 8, two bytes each
#pragma unroll 4
  for (int c = warp; c < p.chunks; c += kWarps) {
    const uint2 s =
        __ldg(reinterpret_cast<const uint2*>(scales + std::int64_t{c} * kTileBytes) + lane);
    most = __vmaxu4(most, __vmaxu4(s.x, s.y));
  }
  __shared__ std::uint32_t of_warps[kWarps][32];
  of_warps[warp][lane] = most;
  __syncthreads();
  const int r = static_cast<int>(threadIdx.x), row = static_cast<int>(blockIdx.x) * kTileRows + r;
  if (r >= kTileRows || row >= p.n) return;
  most = 0;
#pragma unroll
  for (int w = 0; w < kWarps; ++w) most = __vmaxu4(most, of_warps[w][r / 16 * 8 + r % 8]);
  most >>= r % 16 / 8 * 16;
  const std::uint32_t wide = max(most & 0xFF, most >> 8 & 0xFF);
  const E4M3 scale{narrow_scale(static_cast<std::uint8_t>(wide))};
  const float power = fp8_row_factor(E2M1::kMax * scale.to_float());
  const LinearCombination all(p, 0, row);
  to.powers[row] = power;
  to.factors[row] = all.factor * (power / kFragmentUnit);
  if (p.bias != nullptr)
    to.bias[row] = static_cast<std::uint16_t>(p.out_type == DType::bf16 ? pack_bf16(all.bias, 0)
                                                                        : pack_f16(all.bias, 0));
}

/// Decodes two tiles of a row of tiles for each thread block. It reads 9/16 bytes and writes one
/// for an element of W.
__global__ void __launch_bounds__(kThreads)
    decode_kernel(const __grid_constant__ KernelArguments p, const StagedWeights to) {
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int part = warp % kTileWarps;
  const int chunk_index = static_cast<int>(blockIdx.y) * 2 + warp / kTileWarps;
  if (chunk_index >= p.chunks) return;
  const std::uint8_t* const from =
      p.weights + (std::int64_t{blockIdx.x} * p.chunks + chunk_index) * kTileBytes;
  const LaneChunk chunk{
      __ldg(reinterpret_cast<const uint4*>(from + words_at(part, lane))),
      __ldg(reinterpret_cast<const uint2*>(from + kTileCodeBytes + part * 64) + lane / 4)};
  const int row = static_cast<int>(blockIdx.x) * kTileRows + part * 16 + lane / 4;
  const int column = chunk_index * kTileCols + lane % 4 * kBlock;
  const float powers[2] = {__ldg(to.powers + min(row, p.n - 1)),
                           __ldg(to.powers + min(row + 8, p.n - 1))};
  uint4 rows[2];
  decode_lane(chunk, powers, lane, rows);
  if (column >= p.k) return;
#pragma unroll
  for (int r = 0; r < 2; ++r)
    if (row + 8 * r < p.n)
      *reinterpret_cast<uint4*>(to.codes + std::int64_t{row + 8 * r} * p.k + column) = rows[r];
}

}  // namespace

void quantize_rows(const MatrixView& x, std::uint8_t* codes, float* factors, cudaStream_t stream) {
  const auto kernel =
      x.dtype == DType::bf16 ? quantize_rows_kernel<DType::bf16> : quantize_rows_kernel<DType::f16>;
  kernel<<<static_cast<unsigned>(x.rows), kThreads, 0, stream>>>(x, codes, factors);
  check(cudaGetLastError(), "gemm: rows of x to E4M3");
}

void decode_weights(const KernelArguments& p, const StagedWeights& to, cudaStream_t stream) {
  weight_factors_kernel<<<static_cast<unsigned>(p.n_tiles), kThreads, 0, stream>>>(p, to);
  const dim3 tiles(static_cast<unsigned>(p.n_tiles), static_cast<unsigned>(ceil_div(p.chunks, 2)));
  decode_kernel<<<tiles, kThreads, 0, stream>>>(p, to);
  check(cudaGetLastError(), "gemm: weights to E4M3");
}

}  // namespace nvfp4::cuda::fp8
