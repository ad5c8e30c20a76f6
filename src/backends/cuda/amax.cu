// Computes largest magnitudes, and global scales from them.
#include <algorithm>

#include "backends/cuda/device/block.cuh"
#include "backends/cuda/launchers.h"
#include "backends/cuda/runtime.h"
#include "quantizers/encode_block.h"

namespace nvfp4::cuda {
namespace {

constexpr int kThreads = 256;

/// Stores the maximum atomically. Magnitudes are not negative, so their bits have the same order.
__device__ void max_into(float* out, float amax) {
  atomicMax(reinterpret_cast<unsigned*>(out), __float_as_uint(amax));
}

template <DType kType>
__device__ float block_magnitude(const Block<kType>& b) {
  const std::uint32_t bits = b.amax_bits();
  if (bits <= Block<kType>::kInfinity) return Block<kType>::magnitude(bits);
  float values[16];
  for (int i = 0; i < 16; ++i) values[i] = b.value(i);
  return block_amax(values, 16);
}

__device__ void reduce_into(float* out, float amax) {
  const unsigned m = __reduce_max_sync(~0u, __float_as_uint(amax));
  __shared__ unsigned warps[kThreads / 32];
  if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = m;
  __syncthreads();
  if (threadIdx.x < 32) {
    const unsigned all =
        __reduce_max_sync(~0u, threadIdx.x < kThreads / 32 ? warps[threadIdx.x] : 0u);
    if (threadIdx.x == 0) max_into(out, __uint_as_float(all));
  }
}

/// Computes the maximum of a matrix without gaps between rows: `count` elements from x.data on.
template <DType kType>
__global__ void __launch_bounds__(kThreads)
    amax_flat_kernel(const MatrixView x, std::int64_t count, float* out) {
  constexpr int kUnroll = kType == DType::f32 ? 2 : 4;
  const std::int64_t blocks = count / 16, step = std::int64_t{gridDim.x} * kThreads;
  const bool aligned = reinterpret_cast<std::uintptr_t>(x.data) % 16 == 0;
  const char* data = static_cast<const char*>(x.data);
  float amax = 0;
  std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  for (; i + (kUnroll - 1) * step < blocks; i += kUnroll * step) {
    Block<kType> b[kUnroll];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u)
      b[u] = load_block<kType>(data + (i + u * step) * 16 * kElementBytes<kType>, aligned);
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) amax = fmaxf(amax, block_magnitude(b[u]));
  }
  for (; i < blocks; i += step)
    amax = fmaxf(amax,
                 block_magnitude(load_block<kType>(data + i * 16 * kElementBytes<kType>, aligned)));
  if (blockIdx.x == 0 && threadIdx.x < count % 16)
    amax = fmaxf(amax, fabsf(load_element<kType>(x.data, blocks * 16 + threadIdx.x)));
  reduce_into(out, amax);
}

/// Computes the maximum of a matrix with gaps between rows. A thread block strides over its own
/// rows.
template <DType kType>
__global__ void __launch_bounds__(kThreads)
    amax_rows_kernel(const MatrixView x, float* out, bool each_row) {
  float amax = 0;
  for (std::int64_t r = blockIdx.x; r < x.rows; r += gridDim.x) {
    float row = 0;
    for (std::int64_t c = threadIdx.x; c < x.cols; c += kThreads)
      row = fmaxf(row, fabsf(load_element<kType>(x.data, r * x.stride + c)));
    if (each_row) max_into(out + r, __uint_as_float(__reduce_max_sync(~0u, __float_as_uint(row))));
    amax = fmaxf(amax, row);
  }
  if (!each_row) reduce_into(out, amax);
}

constexpr std::int64_t kRowsOfColumns = 256;
template <DType kType>
__global__ void __launch_bounds__(kThreads) amax_columns_kernel(const MatrixView x, float* out) {
  const std::int64_t c = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (c >= x.cols) return;
  for (std::int64_t part = blockIdx.y; part * kRowsOfColumns < x.rows; part += gridDim.y) {
    float amax = 0;
    const std::int64_t end = min(x.rows, (part + 1) * kRowsOfColumns);
    for (std::int64_t r = part * kRowsOfColumns; r < end; ++r)
      amax = fmaxf(amax, fabsf(load_element<kType>(x.data, r * x.stride + c)));
    max_into(out + c, amax);
  }
}

template <DType kType>
void launch(const MatrixView& x, float* out, GlobalScope scope, BlockAxis axis, Stream stream) {
  const int sms = multiprocessors(x.device);
  if (scope == GlobalScope::vector && axis == BlockAxis::columns) {
    const dim3 grid(
        static_cast<unsigned>(ceil_div(x.cols, kThreads)),
        static_cast<unsigned>(std::min<std::int64_t>(ceil_div(x.rows, kRowsOfColumns), 1024)));
    amax_columns_kernel<kType><<<grid, kThreads, 0, stream_of(stream)>>>(x, out);
  } else if (scope == GlobalScope::vector || x.stride != x.cols) {
    const auto grid = static_cast<unsigned>(std::min<std::int64_t>(x.rows, sms * 8));
    amax_rows_kernel<kType>
        <<<grid, kThreads, 0, stream_of(stream)>>>(x, out, scope == GlobalScope::vector);
  } else {
    const std::int64_t count = x.rows * x.cols;
    const auto grid =
        static_cast<unsigned>(std::clamp<std::int64_t>(ceil_div(count / 16, kThreads), 1, sms * 8));
    amax_flat_kernel<kType><<<grid, kThreads, 0, stream_of(stream)>>>(x, count, out);
  }
}

__global__ void finish_kernel(float* values, std::int64_t count, Quantizer q) {
  const std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i < count) values[i] = global_scale_for(values[i], q).multiplier;
}

__global__ void global_scales_kernel(const float* amaxes, GlobalScale* out, std::int64_t count,
                                     Quantizer q) {
  const std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i < count) out[i] = global_scale_for(amaxes[i] >= 0 ? amaxes[i] : 0.0f, q);
}

__global__ void store_kernel(const GlobalScale* given, GlobalScale value, float* out,
                             std::int64_t count) {
  const std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i < count) out[i] = given ? given[i].multiplier : value.multiplier;
}

unsigned grid_of(std::int64_t count) { return static_cast<unsigned>(ceil_div(count, kThreads)); }

}  // namespace

void amax(const MatrixView& x, float* out, GlobalScope scope, BlockAxis axis, Stream stream) {
  const Current current(x.device);
  const std::int64_t count = scope == GlobalScope::tensor ? 1
                             : axis == BlockAxis::rows    ? x.rows
                                                          : x.cols;
  if (count == 0) return;
  check(cudaMemsetAsync(out, 0, static_cast<std::size_t>(count) * sizeof(float), stream_of(stream)),
        "cudaMemsetAsync");
  if (x.rows == 0 || x.cols == 0) return;
  visit_dtype(x.dtype, [&](auto type) { launch<type.value>(x, out, scope, axis, stream); });
  check(cudaGetLastError(), "amax: kernel launch");
}

void finish_global_scales(float* values, std::int64_t count, Quantizer q, Stream stream) {
  if (count == 0) return;
  finish_kernel<<<grid_of(count), kThreads, 0, stream_of(stream)>>>(values, count, q);
  check(cudaGetLastError(), "finish_global_scales: kernel launch");
}

void store_global_scales(const GlobalScales& given, const QuantizedSpan& out, Stream stream) {
  const std::int64_t count = out.shape.global_count();
  if (count == 0) return;
  const bool on_device = given.device.type == DeviceType::cuda;
  store_kernel<<<grid_of(count), kThreads, 0, stream_of(stream)>>>(
      on_device ? given.data : nullptr, on_device ? GlobalScale{} : given[0], out.global_scale,
      count);
  check(cudaGetLastError(), "store_global_scales: kernel launch");
}

void global_scales(const float* amaxes, GlobalScale* out, std::int64_t count, Quantizer q,
                   Device device, Stream stream) {
  if (count == 0) return;
  const Current current(device);
  global_scales_kernel<<<grid_of(count), kThreads, 0, stream_of(stream)>>>(amaxes, out, count, q);
  check(cudaGetLastError(), "global_scales: kernel launch");
}

}  // namespace nvfp4::cuda
