// Computes the error of quantized matrices.
#include "backends/cuda/device/decode.cuh"
#include "backends/cuda/launchers.h"
#include "backends/cuda/runtime.h"
#include "quantizers/error_sum.h"

namespace nvfp4::cuda {
namespace {

constexpr int kWarp = 32;
constexpr int kWarps = 4;  // warps of a thread block
static_assert(kErrorSums == kWarp, "a lane for each sum of a group");

/// Sixteen elements of a vector, and their codes in the layout of a row.
struct Elements {
  float values[16];
  uint2 codes;
};

template <DType kType>
__device__ Elements of_row(const MatrixView& x, const QuantizedView& q, std::int64_t row,
                           std::int64_t k, bool aligned) {
  Elements e;
  const char* data = static_cast<const char*>(x.data);
  const auto block = load_block<kType>(data + (row * x.stride + k) * kElementBytes<kType>, aligned);
#pragma unroll
  for (int i = 0; i < 16; ++i) e.values[i] = block.value(i);
  e.codes = __ldg(reinterpret_cast<const uint2*>(q.codes + (row * q.shape.cols + k) / 2));
  return e;
}

template <DType kType>
__device__ Elements of_column(const MatrixView& x, const QuantizedView& q, std::int64_t column,
                              std::int64_t k) {
  Elements e;
  std::uint32_t words[2] = {0, 0};
#pragma unroll
  for (int i = 0; i < 16; ++i)
    e.values[i] = load_element<kType>(x.data, (k + i) * x.stride + column);
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const std::uint32_t pair = __ldg(q.codes + (k / 2 + i) * q.shape.cols + column);
    words[i / 4] |= pair << i % 4 * 8;
  }
  e.codes = {words[0], words[1]};
  return e;
}

/// Adds up the errors of a group of blocks with a warp; lane j computes sum j.
template <DType kType, BlockAxis kAxis>
__global__ void __launch_bounds__(kWarp* kWarps)
    errors_kernel(const MatrixView x, const QuantizedView q, bool aligned, std::int64_t blocks,
                  Divider across, QuantizationError* parts) {
  constexpr bool kRows = kAxis == BlockAxis::rows;
  const std::int64_t group = std::int64_t{blockIdx.x} * kWarps + threadIdx.x / kWarp;
  const int lane = threadIdx.x % kWarp;
  double error = 0, norm = 0;
#pragma unroll
  for (int i = 0; i < kErrorGroup; i += kErrorSums) {
    const std::int64_t n = group * kErrorGroup + i + lane;
    if (n >= blocks) break;
    // The position of the block in memory order: down and along.
    const std::int64_t down =
        blocks < kMostDivided ? across.quotient(static_cast<std::uint32_t>(n)) : n / across.divisor;
    const std::int64_t along = n - down * across.divisor;
    const std::int64_t vector = kRows ? down : along, block = kRows ? along : down;
    const Decoder decode(__ldg(q.scales + scale_offset_of(q, vector, block)), global_of(q, vector));
    BlockError sums;
    for (int half = 0; half < q.shape.block; half += 16) {
      const std::int64_t k = block * q.shape.block + half;
      const Elements e =
          kRows ? of_row<kType>(x, q, vector, k, aligned) : of_column<kType>(x, q, vector, k);
#pragma unroll
      for (int j = 0; j < 16; ++j)
        sums.add(j, e.values[j], decode(j < 8 ? e.codes.x : e.codes.y, j % 8));
    }
    error += static_cast<double>(sums.squared_error());
    norm += static_cast<double>(sums.squared_norm());
  }
#pragma unroll
  for (int step = kErrorSums / 2; step > 0; step /= 2) {
    error += __shfl_down_sync(~0u, error, step);
    norm += __shfl_down_sync(~0u, norm, step);
  }
  if (lane == 0 && group < error_groups(blocks)) parts[group] = {error, norm};
}

}  // namespace

void error_parts(const MatrixView& x, const QuantizedView& q, QuantizationError* parts,
                 Stream stream) {
  const QuantizedShape& s = q.shape;
  const std::int64_t blocks = s.vectors() * s.blocks();
  if (blocks == 0) return;
  const Current current(q.device);
  const bool rows = s.axis == BlockAxis::rows;
  const Divider across(static_cast<std::uint32_t>(rows ? s.blocks() : s.cols));
  const auto grid = static_cast<unsigned>(ceil_div(error_groups(blocks), kWarps));
  visit_dtype(x.dtype, [&](auto type) {
    constexpr DType kType = type.value;
    const auto kernel =
        rows ? errors_kernel<kType, BlockAxis::rows> : errors_kernel<kType, BlockAxis::columns>;
    kernel<<<grid, kWarp * kWarps, 0, stream_of(stream)>>>(x, q, is_aligned(x), blocks, across,
                                                           parts);
  });
  check(cudaGetLastError(), "quantization_error: kernel launch");
}

}  // namespace nvfp4::cuda
