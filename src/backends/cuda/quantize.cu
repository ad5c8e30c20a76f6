#include <algorithm>

#include "backends/cuda/hessian.h"
#include "backends/cuda/launchers.h"
#include "backends/cuda/quantize.cuh"
#include "backends/cuda/runtime.h"

namespace nvfp4::cuda {
namespace {

constexpr int kThreads = 256;
/// Limit of blocks in one launch: a thread's index fits 31 bits.
constexpr std::int64_t kMostBlocks = std::int64_t{1} << 30;

template <DType kType, bool kAligned>
void launch_rows(const QuantizeArgs& a, int block, cudaStream_t stream) {
  const auto launch = [&](auto kernel, int per_thread, int threads) {
    const auto grid = ceil_div(a.count, std::int64_t{threads} * per_thread);
    launch_dependent(
        "quantize: kernel launch",
        {dim3(static_cast<unsigned>(grid)), dim3(static_cast<unsigned>(threads)), stream}, kernel,
        a);
  };
  if (a.quantizer != Quantizer::max)
    return block == 16 ? launch(quantize_rows_kernel<kType, true, 1, 1, false>, 1, kThreads)
                       : launch(quantize_rows_kernel<kType, true, 2, 1, false>, 1, kThreads);
  // Few blocks: one for each thread, in small thread blocks on many multiprocessors.
  if (a.count < 128 * 1024)
    launch(quantize_rows_kernel<kType, false, 1, 1, kAligned>, 1, 64);
  else
    launch(quantize_rows_kernel<kType, false, 1, 2, kAligned>, 2, kThreads);
}

template <DType kType>
void launch_columns(const QuantizeArgs& a, int block, cudaStream_t stream) {
  const auto grid = static_cast<unsigned>(ceil_div(a.count, kThreads));
  if (block == 16)
    quantize_columns_kernel<kType, 1><<<grid, kThreads, 0, stream>>>(a);
  else
    quantize_columns_kernel<kType, 2><<<grid, kThreads, 0, stream>>>(a);
}

template <DType kType>
void launch(const QuantizeArgs& a, cudaStream_t stream) {
  const QuantizedShape& s = a.out.shape;
  if (s.axis == BlockAxis::rows)
    a.aligned ? launch_rows<kType, true>(a, s.block, stream)
              : launch_rows<kType, false>(a, s.block, stream);
  else
    launch_columns<kType>(a, s.block, stream);
  check(cudaGetLastError(), "quantize: kernel launch");
}

void encode(QuantizeArgs a, cudaStream_t stream) {
  const QuantizedShape& s = a.out.shape;
  if (a.hessian != nullptr) {
    visit_dtype(a.x.dtype, [&](auto type) { launch_hessian<type.value>(a, stream); });
    return check(cudaGetLastError(), "quantize: kernel launch");
  }
  const bool rows = s.axis == BlockAxis::rows;
  const std::int64_t across = rows ? s.blocks() : s.cols, down = rows ? s.rows : s.blocks();
  const std::int64_t step = std::max<std::int64_t>(1, kMostBlocks / across);
  a.per_row = Divider(static_cast<std::uint32_t>(across));
  for (std::int64_t r = 0; r < down; r += step) {
    a.row0 = r;
    a.count = static_cast<std::uint32_t>(std::min(step, down - r) * across);
    visit_dtype(a.x.dtype, [&](auto type) { launch<type.value>(a, stream); });
  }
}

}  // namespace

void clear_padding(const QuantizedSpan& out, Stream stream) {
  const QuantizedShape& s = out.shape;
  if (s.scale_bytes() > s.vectors() * s.blocks())
    check(cudaMemsetAsync(out.scales, 0, static_cast<std::size_t>(s.scale_bytes()),
                          stream_of(stream)),
          "cudaMemsetAsync");
}

void quantize(const DeviceQuantizeJob& job) {
  const QuantizedShape& s = job.out.shape;
  const Current current(job.x.device);
  const bool measured = job.global.empty();
  // The fused-row kernels read rows that fit one thread block once. Here nothing is fused.
  if (measured && s.scope == GlobalScope::vector && s.axis == BlockAxis::rows &&
      job.weights == nullptr && job.hessian.data == nullptr && s.block == 16 &&
      s.cols <= kMostRowElements) {
    RowQuantizeJob rows;
    rows.rows.x = job.x;
    rows.rows.cols = job.x.cols;
    rows.out = job.out;
    rows.quantizer = job.quantizer;
    rows.stream = job.stream;
    return quantize_rows(rows);
  }
  clear_padding(job.out, job.stream);
  QuantizeArgs a{.x = job.x,
                 .out = job.out,
                 .quantizer = job.quantizer,
                 .globals = {},
                 .weights = job.weights,
                 .hessian = static_cast<const float*>(job.hessian.data),
                 .hessian_stride = job.hessian.stride,
                 .write_globals = !measured,
                 .aligned = is_aligned(job.x),
                 .dense = job.x.stride == job.x.cols,
                 .count = 0,
                 .row0 = 0,
                 .per_row = {}};
  a.globals.quantizer = job.quantizer;
  a.globals.of_vectors = s.scope == GlobalScope::vector;
  if (measured) {
    // The amaxes use the memory of the multipliers until every kernel has read them.
    amax(job.x, job.out.global_scale, s.scope, s.axis, job.stream);
    a.globals.amax = job.out.global_scale;
  } else if (job.global.device.type == DeviceType::cuda) {
    a.globals.given = job.global.data;
  } else {
    a.globals.value = job.global[0];
  }
  if (s.vectors() > 0 && s.blocks() > 0)
    encode(a, stream_of(job.stream));
  else if (!measured)
    store_global_scales(job.global, job.out, job.stream);
  if (measured)
    finish_global_scales(job.out.global_scale, s.global_count(), job.quantizer, job.stream);
}

}  // namespace nvfp4::cuda
