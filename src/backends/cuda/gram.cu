// Computes H_j = X_jᵀ X_j for every block j of columns.
#include "backends/cuda/device/block.cuh"
#include "backends/cuda/launchers.h"
#include "backends/cuda/runtime.h"
#include "quantizers/row_math.h"

namespace nvfp4::cuda {
namespace {

constexpr int kThreads = 128;  ///< kGramSums sums, each a 4x4 grid of threads
constexpr int kRows = 64;      ///< rows of X in shared memory; a multiple of kGramSums

/// Computes H for a block of columns. A thread has a square of H, for rows t ≡ sum (mod kGramSums).
template <DType kType, int kSize>
__global__ void __launch_bounds__(kThreads)
    gram_kernel(const MatrixView x, const MatrixSpan out, bool accumulate) {
  constexpr int kTile = kSize / 4;
  __shared__ float rows[kRows][kSize + 4];
  __shared__ float sums[kGramSums][kSize][kSize];
  const std::int64_t column = std::int64_t{blockIdx.x} * kSize;
  const int sum = static_cast<int>(threadIdx.x) / 16;
  const int a0 = static_cast<int>(threadIdx.x) / 4 % 4 * kTile;
  const int b0 = static_cast<int>(threadIdx.x) % 4 * kTile;
  float tile[kTile][kTile] = {};
  for (std::int64_t t0 = 0; t0 < x.rows; t0 += kRows) {
    const int here = static_cast<int>(min(std::int64_t{kRows}, x.rows - t0));
    __syncthreads();
    for (int i = threadIdx.x; i < here * kSize; i += kThreads)
      rows[i / kSize][i % kSize] =
          load_element<kType>(x.data, (t0 + i / kSize) * x.stride + column + i % kSize);
    __syncthreads();
#pragma unroll 4
    for (int t = sum; t < here; t += kGramSums) {
      float a[kTile], b[kTile];
#pragma unroll
      for (int i = 0; i < kTile; ++i) {
        a[i] = rows[t][a0 + i];
        b[i] = rows[t][b0 + i];
      }
#pragma unroll
      for (int i = 0; i < kTile; ++i)
#pragma unroll
        for (int j = 0; j < kTile; ++j) tile[i][j] = tile[i][j] + a[i] * b[j];
    }
  }
#pragma unroll
  for (int i = 0; i < kTile; ++i)
#pragma unroll
    for (int j = 0; j < kTile; ++j) sums[sum][a0 + i][b0 + j] = tile[i][j];
  __syncthreads();
  for (int i = threadIdx.x; i < kSize * kSize; i += kThreads) {
    const int a = i / kSize, b = i % kSize;
    static_assert(kGramSums == 8);
    const float all = ((sums[0][a][b] + sums[1][a][b]) + (sums[2][a][b] + sums[3][a][b])) +
                      ((sums[4][a][b] + sums[5][a][b]) + (sums[6][a][b] + sums[7][a][b]));
    float* to = static_cast<float*>(out.data) + (column + a) * out.stride + b;
    *to = accumulate ? *to + all : all;
  }
}

}  // namespace

void gram(const MatrixView& x, const MatrixSpan& out, bool accumulate, Stream stream) {
  if (x.cols == 0) return;
  const Current current(x.device);
  const auto grid = static_cast<unsigned>(x.cols / out.cols);
  visit_dtype(x.dtype, [&](auto type) {
    if (out.cols == 16)
      gram_kernel<type.value, 16><<<grid, kThreads, 0, stream_of(stream)>>>(x, out, accumulate);
    else
      gram_kernel<type.value, 32><<<grid, kThreads, 0, stream_of(stream)>>>(x, out, accumulate);
  });
  check(cudaGetLastError(), "gram: kernel launch");
}

}  // namespace nvfp4::cuda
