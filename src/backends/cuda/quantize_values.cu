// Rounds x to values that NVFP4 has, for GEMMs on GPUs without FP4 tensor cores.
#include <algorithm>

#include "backends/cuda/dependent_launch.cuh"
#include "backends/cuda/device/encode.cuh"
#include "backends/cuda/device/value_table.cuh"
#include "backends/cuda/launchers.h"

namespace nvfp4::cuda {
namespace {

constexpr std::int64_t kMostBlocks = std::int64_t{1} << 30;

/// A thread has a block of 16 elements.
template <DType kType, bool kAligned>
__global__ void __launch_bounds__(256)
    quantize_values_kernel(const MatrixView x, const float* multiplier, uint4* out, Divider per_row,
                           std::int64_t row0, std::uint32_t count) {
  ptx::griddepcontrol_wait();
  ptx::griddepcontrol_launch_dependents();
  const std::uint32_t index = blockIdx.x * blockDim.x + threadIdx.x;
  if (index >= count) return;
  const std::uint32_t row = per_row.quotient(index), column = index - row * per_row.divisor;
  const std::int64_t element = (row0 + row) * x.stride + std::int64_t{column} * 16;
  const auto* const from = static_cast<const char*>(x.data) + element * kElementBytes<kType>;
  Block<kType> block = load_block<kType, !kAligned>(from, false);
  std::uint32_t bits = block.amax_bits();
  if (bits > Block<kType>::kInfinity) bits = block.replace_nans();
  const Encoder encoder(1.0f / __ldg(multiplier));
  const std::uint32_t scale = encoder.scale_code(Block<kType>::magnitude(bits));
  ValueTable table;
  table.make(Decoder(static_cast<std::uint8_t>(scale), 1.0f), DType::bf16);
  std::uint32_t words[8];
  table.block(encoder(block, scale), words);
  uint4* const to = out + 2 * (row0 * per_row.divisor + index);
  to[0] = {words[0], words[1], words[2], words[3]};
  to[1] = {words[4], words[5], words[6], words[7]};
}

}  // namespace

void quantize_values(const MatrixView& x, const float* multiplier, const MatrixSpan& out,
                     Stream stream) {
  const std::int64_t blocks = x.cols / kBlock;
  if (x.rows == 0 || blocks == 0) return;
  const Current current(x.device);
  const std::int64_t step = std::max<std::int64_t>(1, kMostBlocks / blocks);
  for (std::int64_t r = 0; r < x.rows; r += step) {
    const auto count = static_cast<std::uint32_t>(std::min(step, x.rows - r) * blocks);
    // Few blocks: small thread blocks, on many multiprocessors.
    const unsigned threads = count < 128 * 1024 ? 64 : 256;
    visit_dtype(x.dtype, [&](auto type) {
      launch_dependent(
          "quantize_values",
          {dim3(static_cast<unsigned>(ceil_div(count, threads))), dim3(threads), stream_of(stream)},
          is_aligned(x) ? quantize_values_kernel<type.value, true>
                        : quantize_values_kernel<type.value, false>,
          x, multiplier, static_cast<uint4*>(out.data), Divider(static_cast<std::uint32_t>(blocks)),
          r, count);
    });
  }
}

}  // namespace nvfp4::cuda
