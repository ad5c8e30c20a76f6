// The fused operations: selects kernels, their order and their arguments.
#include "backends/cuda/device/block.cuh"
#include "backends/cuda/launchers.h"
#include "backends/cuda/row_args.h"
#include "backends/cuda/runtime.h"

namespace nvfp4::cuda {
namespace {

constexpr GlobalScale kNothingMeasured{};  ///< global scale of an amax of zero

RowArgs arguments(const RowJob& job) {
  RowArgs a;
  const std::int64_t element = dtype_size(job.x.dtype);
  a.x = static_cast<const char*>(job.x.data);
  a.x_stride = job.x.stride * element;
  a.rows = static_cast<std::int32_t>(job.x.rows);
  a.blocks = static_cast<std::int32_t>(job.cols / 16);
  // Streams and halves are aligned too: they are multiples of 16 elements.
  a.aligned = is_aligned(job.x);
  a.weight = job.weight;
  a.rstd = job.norm.rstd;
  a.eps = job.norm.eps;
  a.intermediate = job.norm.intermediate;
  a.has_residual = job.norm.residual.data != nullptr;
  a.residual = job.norm.residual;
  a.residual_out = job.norm.residual_out;
  a.limit = job.swiglu.limit;
  a.interleave = job.swiglu.interleave;
  a.mix = static_cast<const float*>(job.mix.data);
  a.mix_stride = job.mix.stride;
  a.streams = job.streams;
  return a;
}

ScaleSteps scale_steps(ScaleLayout layout, std::int64_t rows, std::int64_t blocks) {
  const auto offset = [&](std::int64_t row, std::int64_t block) {
    return scale_offset_of(layout, row, block, rows, blocks);
  };
  ScaleSteps s;
  s.tile_shift = layout == ScaleLayout::tiled_128x4 ? 7 : layout == ScaleLayout::tiled_8x4 ? 3 : 0;
  s.chunk = offset(0, 32);
  s.tile = static_cast<std::int32_t>(offset(std::int64_t{1} << s.tile_shift, 0));
  s.row = s.tile_shift == 0 ? 0 : static_cast<std::int32_t>(offset(1, 0));
  return s;
}

void launch(const RowArgs& a, const RowJob& job, Stream stream) {
  if (a.rows == 0 || a.blocks == 0) return;
  const DType dtype = job.x.dtype;
  const Device device = job.x.device;
  switch (job.source) {
    case RowSource::plain:
      return launch_plain_rows(a, dtype, device, stream);
    case RowSource::rms_norm:
      return launch_norm_rows(a, dtype, device, stream);
    case RowSource::mix:
    case RowSource::mix_rms_norm:
      return launch_mix_rows(a, dtype, device, stream);
    case RowSource::swiglu:
      return launch_swiglu_rows(a, dtype, device, stream);
  }
}

}  // namespace

void store_rows(const RowJob& job, const MatrixSpan& y, Stream stream) {
  require_row_size(job.x.rows, job.cols);
  const Current current(job.x.device);
  RowArgs a = arguments(job);
  a.mode = RowMode::store;
  a.y = y;
  launch(a, job, stream);
}

void quantize_rows(const RowQuantizeJob& job) {
  require_row_size(job.rows.x.rows, job.rows.cols);
  const Current current(job.rows.x.device);
  const QuantizedShape& s = job.out.shape;
  const bool measured = job.global.empty(), of_tensor = s.scope == GlobalScope::tensor;
  if (s.rows == 0 || s.cols == 0) {
    if (s.global_count() > 0)
      store_global_scales(measured ? GlobalScales{&kNothingMeasured, 1} : job.global, job.out,
                          job.stream);
    return;
  }
  clear_padding(job.out, job.stream);
  RowJob rows = job.rows;
  RowArgs a = arguments(rows);
  a.measure = measured && !of_tensor;
  a.write_globals = !measured || !of_tensor;
  a.of_vectors = !of_tensor;
  a.quantizer = job.quantizer;
  a.layout = s.layout;
  a.scale_steps = scale_steps(s.layout, a.rows, a.blocks);
  a.block = s.block;
  a.codes = job.out.codes;
  a.scales = job.out.scales;
  a.global_scale = job.out.global_scale;
  a.globals.quantizer = job.quantizer;
  a.globals.of_vectors = !of_tensor;
  a.groups = job.groups;
  a.has_groups = job.groups.count > 0;
  if (measured && of_tensor) {
    // The rows are computed twice: to measure, and to quantize.
    check(cudaMemsetAsync(a.global_scale, 0, sizeof(float), stream_of(job.stream)),
          "cudaMemsetAsync");
    RowArgs first = a;
    first.mode = RowMode::amax;
    first.rstd = nullptr;
    launch(first, rows, job.stream);
    a.globals.amax = a.global_scale;
    if (a.has_residual) {
      // The first pass has stored the sum in residual_out, which may alias the residual.
      rows.x = rows.norm.residual_out;
      rows.norm.residual = {};
      const RowArgs again = arguments(rows);
      a.x = again.x;
      a.x_stride = again.x_stride;
      a.aligned = again.aligned;
      a.has_residual = false;
    }
  } else if (!measured && job.global.device.type == DeviceType::cuda) {
    a.globals.given = job.global.data;
  } else if (!measured) {
    a.globals.value = job.global[0];
  }
  a.top_k = static_cast<std::int32_t>(job.routing.top_k);
  a.routing = job.routing;
  a.staged = job.staged;
  launch(a, rows, job.stream);
  if (measured && of_tensor) finish_global_scales(a.global_scale, 1, job.quantizer, job.stream);
}

}  // namespace nvfp4::cuda
