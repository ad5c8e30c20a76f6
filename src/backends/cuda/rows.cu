// The fused operations: which kernels run, in which order.
#include "backends/cuda/launchers.h"
#include "backends/cuda/row_args.h"
#include "backends/cuda/runtime.h"

namespace nvfp4::cuda {
namespace {

void launch_rows(const RowArgs& a, Stream stream) {
  switch (a.rows.source) {
    case RowSource::mix:
    case RowSource::mix_rms_norm:
      return launch_mixed_rows(a, stream);
    case RowSource::swiglu:
      return launch_swiglu_rows(a, stream);
    default:
      return launch_plain_rows(a, stream);
  }
}

constexpr GlobalScale kNothingMeasured{};  ///< what an amax of zero gives

}  // namespace

void store_rows(const RowJob& job, const MatrixSpan& y, Stream stream) {
  const Current current(job.x.device);
  RowArgs a;
  a.rows = job;
  a.blocks = job.cols / 16;
  a.mode = RowMode::store;
  a.y = y;
  launch_rows(a, stream);
}

void quantize_rows(const RowQuantizeJob& job) {
  const Current current(job.rows.x.device);
  const QuantizedShape& s = job.out.shape;
  const bool measured = job.global.empty(), of_tensor = s.scope == GlobalScope::tensor;
  clear_padding(job.out, job.stream);
  if (s.rows == 0 || s.cols == 0) {
    if (!measured)
      store_global_scales(job.global, job.out, job.stream);
    else if (s.global_count() > 0)
      store_global_scales({&kNothingMeasured, 1}, job.out, job.stream);
    return;
  }
  RowArgs a;
  a.rows = job.rows;
  a.blocks = job.rows.cols / 16;
  a.out = job.out;
  a.quantizer = job.quantizer;
  a.measure = measured && !of_tensor;
  a.write_globals = !measured || !of_tensor;
  a.globals.quantizer = job.quantizer;
  a.globals.of_vectors = !of_tensor;
  a.groups = job.groups;
  if (measured && of_tensor) {
    // The row is made twice: to measure, and to quantize. Nothing is written by the first.
    check(cudaMemsetAsync(job.out.global_scale, 0, sizeof(float), stream_of(job.stream)),
          "cudaMemsetAsync");
    RowArgs first = a;
    first.mode = RowMode::amax;
    first.rows.norm.rstd = nullptr;
    launch_rows(first, job.stream);
    a.globals.amax = job.out.global_scale;
    // The first pass has left the sum in residual_out, which may be where the residual was.
    if (job.rows.norm.residual.data != nullptr) {
      a.rows.x = job.rows.norm.residual_out;
      a.rows.norm.residual = {};
    }
  } else if (!measured && job.global.device.type == DeviceType::cuda) {
    a.globals.given = job.global.data;
  } else if (!measured) {
    a.globals.value = job.global[0];
  }
  a.routing = job.routing;
  a.staged = job.staged;
  launch_rows(a, job.stream);
  if (measured && of_tensor)
    finish_global_scales(job.out.global_scale, 1, job.quantizer, job.stream);
}

}  // namespace nvfp4::cuda
